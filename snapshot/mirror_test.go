package snapshot

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMirror: what a later list does not have any more is passed on as deleted, also where another reflector has listed
// it, and what is not known cannot be deleted. A deletion has its own resourceVersion.
func TestMirror(t *testing.T) {
	var got []string
	name := func(o *Object) string {
		if o == nil {
			return "none"
		}
		return o.Name + o.ResourceVersion
	}
	m := newMirror(func(old, now *Object) { got = append(got, fmt.Sprintf("%s to %s", name(old), name(now))) })
	object := func(name, version string) *Object {
		return &Object{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	known := func() bool {
		select {
		case <-m.known:
			return true
		default:
			return false
		}
	}
	if known() {
		t.Error("known before the first list")
	}
	for _, step := range []struct {
		do   func() error
		want []string
	}{
		{func() error { return m.Replace([]any{object("a", "1"), object("b", "1")}, "") },
			[]string{"none to a1", "none to b1"}},
		{func() error { return m.Update(object("a", "2")) }, []string{"a1 to a2"}},
		{func() error { return m.Delete(object("c", "1")) }, nil},
		{func() error { return m.Replace([]any{object("b", "1"), object("c", "3")}, "3") },
			[]string{"a3 to none", "b1 to b1", "none to c3"}},
		{func() error { return m.Delete(object("b", "4")) }, []string{"b4 to none"}},
		{func() error { return m.Replace(nil, "5") }, []string{"c5 to none"}},
	} {
		got = nil
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if !known() {
			t.Error("not known after a list")
		}
	}
}
