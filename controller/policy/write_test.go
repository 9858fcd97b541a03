package policy

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

func TestKindFault(t *testing.T) {
	widget := &snapshot.Definition{Group: "example.com", Kind: "Widget", Plural: "widgets", Versions: []string{"v2", "v1"},
		Namespaced: true, Template: true}
	unlabelled := &snapshot.Definition{Group: "example.com", Kind: "Widget", Plural: "widgets", Versions: []string{"v1"},
		Namespaced: true}
	of := func(group, version, kind string) *dependency.Template {
		return &dependency.Template{Ref: dependency.Ref{Group: group, Kind: kind, Namespace: "shop", Name: "x"},
			Version: version, Readable: true}
	}
	for name, tc := range map[string]struct {
		template   *dependency.Template
		kind       *snapshot.Definition
		gatekeeper bool
		forbidden  error
		want       string
	}{
		"fine": {template: of("example.com", "v1", "Widget"), kind: widget},
		"not served": {template: of("example.com", "v1", "Widget"),
			want: "no CustomResourceDefinition serves kind Widget of group example.com"},
		"another version": {template: of("example.com", "v3", "Widget"), kind: widget,
			want: `is served as v2, v1, and not as "v3"`},
		"not labelled": {template: of("example.com", "v1", "Widget"), kind: unlabelled,
			want: "widgets.example.com has no label policy.open-cluster-management.io/policy-type=template"},
		"not allowed": {template: of("example.com", "v1", "Widget"), kind: widget,
			forbidden: errors.New("no"), want: "opgate may not list and watch widgets.example.com"},
		"of Kubernetes itself": {template: of("", "v1", "ConfigMap"),
			want: "kind ConfigMap is not one that templates may be"},
		"Gatekeeper, switched off": {template: of("templates.gatekeeper.sh", "v1", "ConstraintTemplate"), kind: widget,
			want: "--gatekeeper-templates"},
		"Gatekeeper, missing": {template: of("templates.gatekeeper.sh", "v1", "ConstraintTemplate"),
			gatekeeper: true, want: "install Gatekeeper"},
		"Gatekeeper, no template": {template: of("constraints.gatekeeper.sh", "v1", "K8sLabels"), gatekeeper: true,
			want: "the ConstraintTemplate that makes it is missing"},
	} {
		got := (&Controller{Gatekeeper: tc.gatekeeper}).kindFault(tc.template, tc.kind, tc.forbidden)
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q does not say %q", name, got, tc.want)
		}
	}
}

func TestFailedWrites(t *testing.T) {
	resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	ref := dependency.Ref{Group: "example.com", Kind: "Widget", Namespace: "shop", Name: "x"}
	terminating := apierrors.NewForbidden(resource, "x", errors.New("being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		err   error
		means error  // nil for what is refused, or returned as it is
		text  string // of what is refused
	}{
		"changed meanwhile":    {apierrors.NewConflict(resource, "x", errors.New("no")), errOutdated, ""},
		"gone meanwhile":       {apierrors.NewNotFound(resource, "x"), errOutdated, ""},
		"namespace on its way": {terminating, errOutdated, ""},
		"there is one":         {apierrors.NewAlreadyExists(resource, "x"), errExists, ""},
		"schema": {apierrors.NewInvalid(schema.GroupKind{Group: "example.com", Kind: "Widget"}, "x",
			nil), nil, `Widget.example.com shop/x could not be created: Widget.example.com "x" is invalid`},
		"unknown field": {apierrors.NewBadRequest("strict decoding error: unknown field \"speck\""),
			nil, "could not be created: strict decoding error"},
		"too large": {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), nil,
			"could not be created: "},
		"no right": {apierrors.NewForbidden(resource, "x",
			errors.New(`User "u" cannot create resource "widgets"`)), nil,
			"opgate may not create widgets.example.com: grant it (chart value ordering.rules)"},
		"a webhook": {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Code: 403, Message: "admission webhook \"w\" denied the request:\n  line 1\n  cannot create"}}, nil, `Widget.example.com shop/x could not be created: admission webhook "w" denied the request: line 1 cannot create`},
		"a definition that is going": {apierrors.NewForbidden(resource, "x",
			errors.New("create not allowed while custom resource definition is terminating")), nil, ""},
		"a quota": {apierrors.NewForbidden(resource, "x", errors.New("exceeded quota")), nil,
			`Widget.example.com shop/x could not be created: widgets.example.com "x" is forbidden: exceeded quota`},
		"an unreachable webhook": {apierrors.NewInternalError(errors.New("failed calling webhook")), nil,
			"could not be created: Internal error"},
		"a lost connection": {errors.New("connection refused"), nil, ""},
		"too many requests": {apierrors.NewTooManyRequests("later", 1), nil, ""},
	} {
		got := classify(apply.Create, ref, &snapshot.Definition{Group: "example.com", Plural: "widgets"}, tc.err)
		var refused refusal
		switch {
		case tc.text != "":
			if !errors.As(got, &refused) || !strings.Contains(got.Error(), tc.text) || strings.Contains(got.Error(), "\n") {
				t.Errorf("%s: %q does not say %q in one line", name, got, tc.text)
			}
		case tc.means == nil && got != tc.err, tc.means != nil && got != tc.means:
			t.Errorf("%s: means %v, want %v", name, got, tc.means)
		}
	}
}
