package backstop_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/opgate/opgate/internal/kept"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/backstop"
)

// TestEvidence: what Opgate records is written by accounts of its namespace, and deleted also by who cleans up and by
// who may delete the policy, or, from files, by maintainers. Which namespace it is the test on a real API server covers.
func TestEvidence(t *testing.T) {
	o := compile(backstop.Input{Features: everything, Namespace: "opgate-system"})
	inAPI := newAPIServer(t, &parts{Validating: o.Evidence, ValidatingBinding: o.EvidenceBinding})
	loaded, _ := backstop.CompileStatic(backstop.StaticInput{Namespace: "opgate-system", Opgate: opgateUser,
		Maintainers: []string{"alice"}})
	files := &parts{}
	for _, object := range loaded {
		if p, ok := object.(*admissionv1.ValidatingAdmissionPolicy); ok && p.Name == backstop.EvidenceName+".static.k8s.io" {
			files.Validating = p
		}
	}
	fromFiles := newAPIServer(t, files)
	made := func(kind, name string, change object) object {
		metadata := object{"namespace": "opgate-system", "name": name}
		o := object{"apiVersion": map[string]string{"ConfigMap": "v1", "Lease": "coordination.k8s.io/v1"}[kind],
			"kind": kind, "metadata": metadata}
		for key, value := range change {
			if key == "data" || key == "spec" || key == "binaryData" {
				o[key] = value
			} else {
				metadata[key] = value
			}
		}
		return o
	}
	mayDelete := []string{"delete validatingadmissionpolicies /opgate-evidence"}
	for _, c := range []struct {
		name string
		user string
		// rights are those of cluster admins, as far as they are asked for.
		rights []string
		// change is what an update changes; nil for a creation and for a deletion.
		change  object
		deletes bool
		// refused is set where the policy in the API refuses, and static where the one from files does.
		refused, static bool
	}{
		{name: "Opgate creates", user: opgateUser},
		{name: "Opgate changes", user: opgateUser, change: object{"data": object{"a": "b"}}},
		{name: "Opgate deletes", user: opgateUser, deletes: true},
		{name: "another release's account", user: "system:serviceaccount:opgate-system:opgate-2",
			change: object{"spec": object{"holderIdentity": "b"}}},
		{name: "an account of another namespace", user: "system:serviceaccount:opgate-system-2:opgate",
			change: object{"data": object{"a": "b"}}, refused: true, static: true},
		{name: "a user creates", user: "bob", refused: true, static: true},
		{name: "a maintainer creates", user: "alice", rights: mayDelete, refused: true, static: true},
		{name: "a maintainer changes", user: "alice", rights: mayDelete, change: object{"data": object{"a": "b"}},
			refused: true, static: true},
		{name: "binary data", user: "bob", change: object{"binaryData": object{"a": "AA=="}}, refused: true, static: true},
		{name: "a Lease", user: "bob", change: object{"spec": object{"holderIdentity": "b"}}, refused: true, static: true},
		{name: "an annotation", user: "bob", change: object{"annotations": object{metakey.UnreviewedInstalls: "[]"}},
			refused: true, static: true},
		{name: "a label", user: "bob", change: object{"labels": object{metakey.Record: "b"}}, refused: true, static: true},
		{name: "an owner that does not exist", user: "bob", change: object{"ownerReferences": []any{object{"uid": "1"}}},
			refused: true, static: true},
		{name: "a migration of storage", user: "bob", change: object{}},
		{name: "a finalizer", user: "bob", change: object{"finalizers": []any{"x"}}},
		{name: "a user deletes", user: "bob", deletes: true, refused: true, static: true},
		{name: "a cluster admin deletes", user: "bob", rights: mayDelete, deletes: true, static: true},
		{name: "a maintainer deletes", user: "alice", deletes: true, refused: true},
		{name: "the namespace controller", user: "system:serviceaccount:kube-system:namespace-controller", deletes: true},
		{name: "the garbage collector", user: "system:serviceaccount:kube-system:generic-garbage-collector", deletes: true},
		{name: "both without accounts", user: "system:kube-controller-manager", deletes: true},
		{name: "the namespace controller changes", user: "system:serviceaccount:kube-system:namespace-controller",
			change: object{"data": object{"a": "b"}}, refused: true, static: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			judge := func(s *apiServer, kind, resource, name string, refused bool) {
				t.Helper()
				w := write{resource: resource, user: c.user, rights: c.rights, object: made(kind, name, c.change)}
				if c.change != nil || c.deletes {
					w.old = made(kind, name, nil)
				}
				if c.deletes {
					w.object = nil
				}
				got := s.judge(t, w)
				if len(got.failed) > 0 || refused != (len(got.refused) == 1) {
					t.Errorf("%s %s: %+v, want a refusal: %t", kind, name, got, refused)
				}
				if refused && !strings.HasPrefix(got.refused[0], strings.ToLower(kind)+" opgate-system/"+name+
					": writing what Opgate decides by is not allowed: allowed is "+opgateUser+", and for its deletion ") {
					t.Errorf("it says %q", got.refused[0])
				}
			}
			for _, s := range []struct {
				*apiServer
				refused bool
			}{{inAPI, c.refused}, {fromFiles, c.static}} {
				for _, name := range kept.ConfigMaps() {
					if strings.HasSuffix(name, "-") {
						name += "shop"
					}
					judge(s.apiServer, "ConfigMap", "configmaps", name, s.refused)
				}
				for _, name := range kept.Leases() {
					judge(s.apiServer, "Lease", "leases", name, s.refused)
				}
				for _, name := range []string{"kube-root-ca.crt", "opgate-catalogs-2", "opgate-installed", "opgate"} {
					judge(s.apiServer, "ConfigMap", "configmaps", name, false)
				}
				judge(s.apiServer, "Lease", "leases", backstop.ProbeLease, false)
			}
		})
	}
	if o := compile(backstop.Input{Features: everything}); o.Evidence != nil {
		t.Error("the namespace is not known")
	}
}
