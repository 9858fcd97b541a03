package olmidentity

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

var account = Account{Namespace: "olm", Name: "olm-operator-serviceaccount"}

func TestParse(t *testing.T) {
	got, err := Parse("system:serviceaccount:olm:olm-operator-serviceaccount")
	if err != nil || got != account || got.Username() != "system:serviceaccount:olm:olm-operator-serviceaccount" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := Parse("system:admin"); err != nil || got.IsServiceAccount() || got.Username() != "system:admin" ||
		got.String() != "system:admin" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, name := range []string{
		"", "olm@example.com", "system:anonymous", "system:admin' || true", "system:", "system:serviceaccount",
		"system:serviceaccount:", "system:serviceaccount:olm", "system:serviceaccount:olm:",
		"system:serviceaccount::a",
		"system:serviceaccount:olm:a:b", "system:serviceaccounts:olm:a", "system:serviceaccount:Olm:a",
		"system:serviceaccount:a' || true:b",
	} {
		if got, err := Parse(name); err == nil {
			t.Errorf("%q is read as %v", name, got)
		}
	}
}

var (
	noon    = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	deleted = metav1.NewTime(noon)
)

// found returns an object as the API server stores it.
func found(uid types.UID, created time.Time) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetUID(uid)
	u.SetCreationTimestamp(metav1.NewTime(created))
	return u
}

func TestExamineNamedAsAttacks(t *testing.T) {
	terminating := found("account", noon)
	terminating.SetDeletionTimestamp(&deleted)
	for name, test := range map[string]struct {
		namespace      *unstructured.Unstructured
		serviceAccount *unstructured.Unstructured
		acknowledged   types.UID
		want           Reason
		says           string
	}{
		"OLM that was there before": {
			namespace:      found("namespace", noon.Add(-time.Hour)),
			serviceAccount: found("account", noon.Add(time.Hour)), // the owners of a namespace may recreate an account
			want:           Trusted,
		},
		"OLM of the same second": {
			namespace:      found("namespace", noon),
			serviceAccount: found("account", noon),
			want:           Trusted,
		},
		"no namespace, for a tenant to create": {
			want: NamespaceMissing,
			says: "--olm-identity",
		},
		"no account, for a tenant to create": {
			namespace: found("namespace", noon.Add(-time.Hour)),
			want:      ServiceAccountMissing,
			says:      "Deployment olm-operator",
		},
		"an account that is being deleted": {
			namespace:      found("namespace", noon.Add(-time.Hour)),
			serviceAccount: terminating,
			want:           ServiceAccountMissing,
		},
		"a namespace that a tenant created since": {
			namespace:      found("namespace", noon.Add(time.Second)),
			serviceAccount: found("account", noon.Add(time.Second)),
			want:           NamespaceYounger,
			says:           "--olm-namespace-uid=namespace",
		},
		"the same, acknowledged": {
			namespace:      found("namespace", noon.Add(time.Second)),
			serviceAccount: found("account", noon.Add(time.Second)),
			acknowledged:   "namespace",
			want:           Trusted,
		},
		"another one than was acknowledged": {
			namespace:      found("namespace", noon.Add(time.Second)),
			serviceAccount: found("account", noon.Add(time.Second)),
			acknowledged:   "a namespace that was deleted since",
			want:           NamespaceYounger,
		},
		"acknowledged without an account": {
			namespace:    found("namespace", noon.Add(time.Second)),
			acknowledged: "namespace",
			want:         ServiceAccountMissing,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := evidence{account: account, namespace: test.namespace, serviceAccount: test.serviceAccount,
				home: "opgate-system", installed: noon, acknowledged: test.acknowledged}
			got, fits := e.examine()
			if got.Reason != test.want || fits != (test.want == Trusted) || !strings.Contains(got.Problem, test.says) {
				t.Errorf("got %+v, want %s that says %q", got, test.want, test.says)
			}
			if (got.UID == "account") != fits || (got.Problem == "") != fits {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestIs(t *testing.T) {
	trusted := State{Reason: Trusted, UID: "account"}
	for name, test := range map[string]struct {
		state  State
		user   string
		uid    string
		is     bool
		reason Reason // "" for no doubt
	}{
		"OLM by its token":          {state: trusted, user: account.Username(), uid: "account", is: true},
		"OLM without a UID":         {state: trusted, user: account.Username(), is: true},
		"an account of another UID": {state: trusted, user: account.Username(), uid: "other", reason: Unverified},
		"another user":              {state: trusted, user: "tenant", uid: "account"},
		"the same name in another ns": {state: trusted,
			user: "system:serviceaccount:openshift-operator-lifecycle-manager:olm-operator-serviceaccount"},
		"not verified yet": {state: State{Reason: Unverified}, user: account.Username(), reason: Unverified},
		"rejected":         {state: State{Reason: NamespaceYounger}, user: account.Username(), reason: NamespaceYounger},
		"rejected, and no UID at all": {state: State{Reason: NamespaceMissing}, user: account.Username(), uid: "",
			reason: NamespaceMissing},
		"another user while rejected": {state: State{Reason: NamespaceMissing}, user: "tenant"},
	} {
		t.Run(name, func(t *testing.T) {
			identity := New(account)
			identity.Set(test.state)
			user := &authenticationv1.UserInfo{Username: test.user, UID: test.uid}
			if got := identity.Is(user); got != test.is {
				t.Errorf("Is is %v", got)
			}
			if untrusted, doubted := identity.Untrusted(user); untrusted.Reason != test.reason ||
				doubted != (test.reason != "") {
				t.Errorf("Doubt is %+v, %v", untrusted, doubted)
			}
		})
	}
	if s := New(account).State(); s.Reason != Unverified {
		t.Errorf("a new identity is %s", s.Reason)
	}
}

func TestCollector(t *testing.T) {
	identity := New(account)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(identity))
	for reason, value := range map[Reason]float64{Unverified: 0, NamespaceYounger: 0, Trusted: 1} {
		identity.Set(State{Reason: reason})
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if len(families) != 1 || families[0].GetName() != "opgate_olm_identity_trusted" ||
			len(families[0].GetMetric()) != 1 {
			t.Fatalf("%s: got %v", reason, families)
		}
		sample := families[0].GetMetric()[0]
		if label := sample.GetLabel()[0]; label.GetName() != "reason" || label.GetValue() != string(reason) ||
			sample.GetGauge().GetValue() != value {
			t.Errorf("%s: got %v", reason, sample)
		}
	}
}
