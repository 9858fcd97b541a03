package test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/admission"
	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/admission/scenario/play"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/crdschema"
	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// send returns what the write of a scenario in a directory gets: no webhook reviews a deletion. Errors are about the
// scenario's objects, and are *scenario.Fault where a line is known.
func (o *options) send(ctx context.Context, dir string, s *scenario.Scenario) (*play.Outcome, error) {
	if s.Verb == "delete" {
		return &play.Outcome{Decision: verdict.Allow.String()}, nil
	}
	existing, err := existing(dir, s)
	if err != nil {
		return nil, err
	}
	for i, u := range existing {
		if existing[i], err = play.Marked(u, key); err != nil {
			return nil, err
		}
	}
	old, object, err := s.Written(existing)
	if err != nil {
		return nil, &scenario.Fault{Line: s.Line("do"), Err: err}
	}
	gate, err := o.gate(existing, s)
	if err != nil {
		return nil, err
	}
	write := play.Write{User: s.User, Status: s.Verb == "replace-status", Old: old, New: object.DeepCopy()}
	if old != nil {
		write.Old = old.DeepCopy()
	}
	for _, u := range []*unstructured.Unstructured{write.Old, write.New} {
		if schema := crdschema.Own(write.New.GroupVersionKind()); schema != nil && u != nil {
			schema.Default(u.Object)
		}
	}
	return write.Send(ctx, gate.Handlers())
}

// existing returns what exists before the write. The scenario's own objects replace those of the same
// name in the files that it refers to.
func existing(dir string, s *scenario.Scenario) ([]*unstructured.Unstructured, error) {
	own := slices.Concat(s.Cluster, s.Policies)
	found, err := read(dir, s.With)
	if err != nil {
		return nil, &scenario.Fault{Line: s.Line("with"), Err: err}
	}
	all := append(slices.DeleteFunc(found, func(u *unstructured.Unstructured) bool {
		return slices.ContainsFunc(own, func(o *unstructured.Unstructured) bool { return same(o, u) })
	}), own...)
	if s.Write != nil && s.Write.GetNamespace() != "" && !slices.ContainsFunc(all,
		func(u *unstructured.Unstructured) bool {
			return u.GetKind() == "Namespace" && u.GetName() == s.Write.GetNamespace()
		}) {
		namespace := &unstructured.Unstructured{}
		namespace.SetAPIVersion("v1")
		namespace.SetKind("Namespace")
		namespace.SetName(s.Write.GetNamespace())
		all = append(all, namespace) // the API server takes no object for a namespace that is not there
	}
	return all, nil
}

func same(a, b *unstructured.Unstructured) bool {
	return a.GroupVersionKind().GroupKind() == b.GroupVersionKind().GroupKind() &&
		a.GetNamespace() == b.GetNamespace() && a.GetName() == b.GetName()
}

// read reads the objects of the kinds that the gate follows, and ConfigMaps, in files and directories.
func read(dir string, with []string) (found []*unstructured.Unstructured, err error) {
	if len(with) == 0 {
		return nil, nil
	}
	names := make([]string, len(with))
	for i, name := range with {
		if name == cli.StandardInput {
			return nil, errors.New("standard input is not for scenarios: name files and directories")
		}
		names[i] = filepath.Join(dir, filepath.FromSlash(name))
	}
	var problems strings.Builder
	unit, err := manifests.Read(names, strings.NewReader(""), &problems, manifests.Options{Namespace: "default"})
	if err != nil {
		first, _, _ := strings.Cut(problems.String(), "\n")
		return nil, fmt.Errorf("cannot be used: %s", cmp.Or(first, err.Error()))
	}
	for _, o := range unit.Objects {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(o.JSON(), &u.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Place, err)
		}
		if play.KindOf(u) != nil || play.JudgedAlone(u) || u.GetKind() == "ConfigMap" ||
			u.GetKind() == olm.KindPackageManifest {
			found = append(found, u)
		}
	}
	return found, nil
}

// key signs the marks of Policies that scenarios store.
var key = []byte("scenarios store Policies as users with all rights would")

// gate returns a gate over some objects, which verified OLM's account. A user named admin has every right that it asks
// for, others have none.
func (o *options) gate(existing []*unstructured.Unstructured, s *scenario.Scenario) (*admission.Gate, error) {
	offered := catalogs{}
	isPackage := func(u *unstructured.Unstructured) bool { return u.GetKind() == olm.KindPackageManifest }
	for _, u := range slices.Concat(s.Catalog, existing) {
		if pkg := catalog.Decode(u.Object); isPackage(u) && pkg != nil {
			offered = append(offered, pkg)
		}
	}
	cluster := play.Cluster{Objects: slices.DeleteFunc(slices.Clone(existing), isPackage),
		Versions: facts.Cluster{Version: o.versions.Kubernetes, OpenShift: o.versions.OpenShift}}
	in := admission.Options{Authorizer: admins{}, Authenticated: func(*http.Request) bool { return true },
		Key: func() []byte { return key }, OLM: olmVerified(), ApprovalMode: rules.ApprovalMode(o.approvalMode), Log: logr.Discard(),
		Now: time.Now} //nolint:forbidigo // a script that names no time is judged at its own
	if !s.Now.IsZero() {
		in.Now = func() time.Time { return s.Now }
	}
	if len(offered) > 0 {
		in.Catalogs, cluster.Packages = offered, func(pkg, _ string, source olm.Catalog) *catalog.Package {
			return offered.Get(pkg, source)
		}
	}
	built, err := cluster.Snapshot()
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	in.Store = snapshot.NewStore(built)
	in.Metrics = admission.NewMetrics(registry, in.Store, in.Now)
	in.Budget, in.Panics = inflight.NewBudget(registry), panics.NewRecorder(registry, in.Log)
	return admission.New(in), nil
}

// olmVerified is OLM's identity as it is once it was verified.
func olmVerified() *olmidentity.Identity {
	account, err := olmidentity.Parse(play.OLM)
	if err != nil {
		panic(err) // it is a constant
	}
	identity := olmidentity.New(account)
	identity.Set(olmidentity.State{Reason: olmidentity.Trusted})
	return identity
}

// admins grants user admin of scenarios every right.
type admins struct{}

// May implements olmidentity.Authorizer.
func (admins) May(
	_ context.Context, user *authenticationv1.UserInfo, _ *authorizationv1.ResourceAttributes,
) (bool, error) {
	return user.Username == "admin", nil
}

// catalogs are packages, in the order of the input.
type catalogs []*catalog.Package

// Get implements admission.Catalogs.
func (c catalogs) Get(pkg string, source olm.Catalog) *catalog.Package {
	i := slices.IndexFunc(c, func(p *catalog.Package) bool {
		return p.Name == pkg && cmp.Or(source.Namespace, p.Catalog.Namespace) == p.Catalog.Namespace &&
			cmp.Or(source.Name, p.Catalog.Name) == p.Catalog.Name
	})
	if i < 0 {
		return nil
	}
	return c[i]
}

// differ returns how an outcome differs from what a scenario wants, each with the line of the header or the file.
func differ(s *scenario.Scenario, got *play.Outcome) (list []error) {
	add := func(of, format string, args ...any) {
		list = append(list, &scenario.Fault{Line: s.Line(of), Err: fmt.Errorf(format, args...)})
	}
	if got.Decision != s.Decision {
		add("want", "wants %s, and the decision is %s", s.Decision, got.Decision)
	}
	if got.Message != s.Message {
		add("want", "wants other words\n  want: %s\n  got:  %s", orNone(s.Message), orNone(got.Message))
	}
	for _, w := range s.Warnings {
		if !slices.Contains(got.Warnings, w) {
			add("warnings", "wants a warning that is missing\n  want: %s", w)
		}
	}
	for _, w := range got.Warnings {
		if !slices.Contains(s.Warnings, w) {
			add("warnings", "wants no such warning\n  got:  %s", w)
		}
	}
	said := got.Message + "\n" + strings.Join(got.Warnings, "\n")
	for _, id := range s.Rules {
		// the API server's own rules
		if spoken := "(" + string(id) + ")"; !strings.Contains(said, spoken) && !strings.Contains(s.Backstop, spoken) {
			add("rules", "wants rule %s, which neither refuses nor warns", id)
		}
	}
	if s.Stored != nil {
		merged, err := jsonpatch.MergePatch(got.Object, s.Stored)
		if err != nil || !jsonpatch.Equal(merged, got.Object) {
			add("stored.json", "wants other fields in what is stored\n  got:  %s", got.Object)
		}
	}
	return list
}

func orNone(message string) string { return cmp.Or(message, "(none)") }
