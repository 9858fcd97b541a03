package backstop_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/backstop"
)

// TestUnpacked: OLM and the Job write the contents of unpacked bundles, and no other user without a reason and the
// right to it. What the API server selects by label, the test on a real one covers.
func TestUnpacked(t *testing.T) {
	o := compile(backstop.Input{Features: everything})
	s := newAPIServer(t, &parts{Validating: o.Unpacked, ValidatingBinding: o.UnpackedBinding})
	name := strings.Repeat("0123456789abcdef", 4)[:63]
	configMap := func(metadata, contents object) object {
		o := object{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": object{"namespace": "olm", "name": name, "labels": object{"olm.managed": "true"}}}
		for key, value := range metadata {
			o["metadata"].(object)[key] = value
			if value == nil {
				delete(o["metadata"].(object), key)
			}
		}
		for key, value := range contents {
			o[key] = value
		}
		return o
	}
	data := object{"data": object{"csv.yaml": "{}"}}
	reason := object{"annotations": object{metakey.OverrideReason: "incident 7"}}
	forged := object{"data": object{"csv.yaml": "forged"}}
	right := "override configmaps olm/" + name
	for _, c := range []struct {
		name        string
		user        string
		rights      []string
		object, old any
		refused     bool
	}{
		{name: "OLM creates", user: olmUser, rights: []string{escalate}, object: configMap(nil, nil)},
		{name: "a namesake of OLM without its rights creates", user: olmUser, object: configMap(nil, nil), refused: true},
		{name: "a user creates", user: "alice", object: configMap(nil, data), refused: true},
		{name: "a user creates one of another name", user: "alice", object: configMap(object{"name": "settings"}, data)},
		{name: "without a name", user: "alice", object: configMap(object{"name": nil}, data)},
		{name: "the Job writes", user: "system:serviceaccount:olm:" + name, object: configMap(nil, data),
			old: configMap(nil, nil)},
		{name: "the Job of another writes", user: "system:serviceaccount:olm:x" + name[1:],
			object: configMap(nil, data), old: configMap(nil, nil), refused: true},
		{name: "the Job of another namespace writes", user: "system:serviceaccount:x:" + name,
			object: configMap(nil, data), old: configMap(nil, nil), refused: true},
		{name: "the account of all pods writes", user: "system:serviceaccount:olm:default",
			object: configMap(nil, forged), old: configMap(nil, data), refused: true},
		{name: "Opgate writes", user: opgateUser, object: configMap(nil, forged), old: configMap(nil, data), refused: true},
		{name: "data", user: "alice", object: configMap(nil, forged), old: configMap(nil, data), refused: true},
		{name: "without data", user: "alice", object: configMap(nil, nil), old: configMap(nil, data), refused: true},
		{name: "binary data", user: "alice", object: configMap(nil, object{"binaryData": object{"a": "AA=="}}),
			old: configMap(nil, nil), refused: true},
		{name: "immutable", user: "alice", object: configMap(nil, object{"immutable": true}), old: configMap(nil, nil),
			refused: true},
		{name: "the label", user: "alice", object: configMap(object{"labels": nil}, data), old: configMap(nil, data),
			refused: true},
		{name: "an annotation", user: "alice",
			object: configMap(object{"annotations": object{"olm.contentEncoding": "gzip+base64"}}, data),
			old:    configMap(nil, data), refused: true},
		{name: "the garbage collector", user: "system:serviceaccount:kube-system:generic-garbage-collector",
			object: configMap(object{"ownerReferences": nil, "finalizers": []any{"x"}}, data),
			old:    configMap(object{"ownerReferences": []any{object{"name": "x"}}}, data)},
		{name: "an override", user: "alice", rights: []string{right}, object: configMap(reason, forged),
			old: configMap(nil, data)},
		{name: "an override without the right", user: "alice", object: configMap(reason, forged),
			old: configMap(nil, data), refused: true},
		{name: "an override of another", user: "alice", rights: []string{"override configmaps olm/settings"},
			object: configMap(reason, forged), old: configMap(nil, data), refused: true},
		{name: "the right without a reason", user: "alice", rights: []string{right}, object: configMap(nil, forged),
			old: configMap(nil, data), refused: true},
		{name: "an override with an old reason", user: "alice", rights: []string{right},
			object: configMap(reason, forged), old: configMap(reason, data), refused: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := write{resource: "configmaps", user: c.user, rights: c.rights, object: c.object, old: c.old}
			got := s.judge(t, w)
			if len(got.failed) > 0 || c.refused != (len(got.refused) == 1) {
				t.Errorf("%+v, want a refusal: %t", got, c.refused)
			}
			if c.refused && !strings.HasPrefix(got.refused[0], "configmap olm/"+
				name+": changing the contents of an unpacked bundle is not allowed: "+
				"only OLM writes them, and its Job as system:serviceaccount:olm:"+name) {
				t.Errorf("it says %q", got.refused[0])
			}
			if overrides := strings.HasPrefix(c.name, "an override") &&
				!strings.HasSuffix(c.name, "old reason"); overrides != (got.audit != "") {
				t.Errorf("the audit annotation is %q", got.audit)
			}
		})
	}
	if o := compile(backstop.Input{Features: everything, OLM: []string{}}); o.Unpacked != nil || len(o.All) != 4 {
		t.Error("OLM is not known, and its writes would be refused")
	}
	if !slices.Equal(o.UnpackedBinding.Spec.ValidationActions, o.ValidatingBinding.Spec.ValidationActions) {
		t.Error("the two policies differ in what they do")
	}
}
