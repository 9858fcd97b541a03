package policy

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestWriteError(t *testing.T) {
	this, other := attempt{verb: create, generation: 1}, attempt{verb: create, generation: 2}
	var none *writeError
	if none.wait(this, start) > 0 {
		t.Error("waits without an error")
	}
	expect := func(t *testing.T, what string, tr *writeError, a attempt, at time.Time, wait time.Duration) {
		t.Helper()
		if got := tr.wait(a, at); got != wait {
			t.Errorf("%s: waits %s, want %s", what, got, wait)
		}
	}
	t.Run("refused", func(t *testing.T) {
		tr := none.next(this, true, "no", start)
		expect(t, "at once", tr, this, start, firstRetry)
		expect(t, "another", tr, other, start, 0)
		expect(t, "later", tr, this, start.Add(firstRetry), 0)
		tr = tr.next(this, true, "no", start.Add(firstRetry))
		expect(t, "again", tr, this, start.Add(firstRetry), 2*firstRetry)
		for range 20 {
			tr = tr.next(this, true, "no", start)
		}
		expect(t, "in the end", tr, this, start, lastRetry)
		expect(t, "after an edit", tr.next(other, true, "no", start), other, start, firstRetry)
	})
	t.Run("failed", func(t *testing.T) {
		tr := none.next(this, false, "no", start)
		if tr.text != "" {
			t.Error("reported at once")
		}
		expect(t, "at once", tr, this, start, 0)
		tr = tr.next(this, false, "no", start.Add(gracePeriod-1))
		if tr.text != "" {
			t.Error("reported too early")
		}
		tr = tr.next(this, false, "no", start.Add(gracePeriod))
		if tr.text != "no" {
			t.Error("not reported in the end")
		}
		expect(t, "then", tr, this, start.Add(gracePeriod), 0)
	})
}

func TestStateIsOfOnePolicy(t *testing.T) {
	var m state
	key := types.NamespacedName{Namespace: "shop", Name: "app"}
	m.policy(key, "one").template(dependency.Ref{Name: "x"}).contested = true
	if !m.policy(key, "one").template(dependency.Ref{Name: "x"}).contested {
		t.Error("forgotten")
	}
	if m.policy(key, "two").template(dependency.Ref{Name: "x"}).contested {
		t.Error("a Policy that was deleted and made again remembers the former one")
	}
	m.Delete(key)
	if _, known := m.Load(key); known {
		t.Error("not forgotten")
	}
}

func TestStateForgetsObjectsThatAreGone(t *testing.T) {
	p := &policyState{templates: map[dependency.Ref]*templateState{}}
	for _, name := range []string{"template", "pruned", "gone"} {
		p.template(dependency.Ref{Name: name})
	}
	p.keep(map[dependency.Ref]bool{{Name: "template"}: true},
		map[dependency.Ref]*unstructured.Unstructured{{Name: "pruned"}: {}})
	if len(p.templates) != 2 || p.templates[dependency.Ref{Name: "gone"}] != nil {
		t.Errorf("remembers %v", p.templates)
	}
}

// TestCorrections: an object that another client keeps changing is corrected less and less often.
func TestCorrections(t *testing.T) {
	limit := newTemplateState().corrections
	for i := range freeCorrections {
		if !limit.AllowN(start, 1) {
			t.Errorf("change %d waits", i)
		}
	}
	if limit.TokensAt(start) >= 1 || limit.TokensAt(start.Add(correctionPeriod)) < 1 {
		t.Error("it is corrected again at once, or never")
	}
}
