package plugin

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

const historyLong = `Show what happened to the operator of a package, in all namespaces, from what the cluster still has: the InstallPlans that
bring its versions, with when they were made and installed, who consented to their changes and to which, reasons of
overrides, and the messages of the OperatorPolicies that govern it. Nothing is written.

APPROVED is the program that last wrote spec.approved, by the name that it gave the API server (catalog is OLM's,
opgate the loop's): not a user. Then who consented (annotation opgate.io/consent-by) and why an override was made
(annotation opgate.io/override-reason). CHANGE is the digest of the change set that was consented to on the plan. OLM
deletes old plans: what is gone is not shown, and the audit log of the API server has it. An installed version without
a plan is shown without one.

Messages of policies are in the wide output, and in JSON and YAML:

  {"package", "plans": [{"namespace", "plan", "csv", "version", "phase", "created", "installed", "approved", "approver", "consentBy",
   "overrideReason", "consent": ["sha256:..."]}], "policies": [{"policy", "time", "message"}]}

Exit codes:
  0  the history was shown, even if there is none
  2  the command line cannot be used, or the cluster cannot be read`

const historyExample = `  # which versions of etcd were installed, when, and by whose approval
  kubectl opgate history etcd

  # with what the policies reported
  kubectl opgate history etcd -o wide`

// packageHistory is what the cluster has of a package.
type packageHistory struct {
	Package  string        `json:"package"`
	Plans    []planEvent   `json:"plans"`
	Policies []policyEvent `json:"policies"`
}

// planEvent is a plan that brings a version of the package, or an installed version of which the plan is gone.
type planEvent struct {
	Namespace string    `json:"namespace"`
	Plan      string    `json:"plan"`
	CSV       string    `json:"csv"`
	Version   string    `json:"version"`
	Release   string    `json:"release,omitempty"`
	Phase     string    `json:"phase"`
	Created   time.Time `json:"created"`
	// Installed is empty, or when OLM completed the plan, as RFC 3339.
	Installed      string   `json:"installed"`
	Approved       bool     `json:"approved"`
	Approver       string   `json:"approver"`
	ConsentBy      string   `json:"consentBy"`
	OverrideReason string   `json:"overrideReason"`
	Consent        []string `json:"consent"`
}

// policyEvent is a message of a policy.
type policyEvent struct {
	Policy  string    `json:"policy"`
	Time    time.Time `json:"time"`
	Message string    `json:"message"`
}

func historyCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "history PACKAGE",
		Short:   "Show which versions of a package were planned, approved and installed",
		Long:    historyLong,
		Example: historyExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" || len(args[0]) > catalog.MaxName {
				return o.usage(cmd, "write the name of one package, as in: history etcd")
			}
			a := approvers{by: map[types.NamespacedName]string{}}
			state, err := o.read(cmd.Context(), cmd.ErrOrStderr(),
				cluster.Options{Namespace: o.namespace, Seen: a.see, Kinds: []*snapshot.Kind{
					snapshot.InstallPlans, snapshot.Subscriptions, snapshot.ClusterServiceVersions,
					snapshot.OperatorPolicies}})
			if err != nil {
				return err
			}
			return printHistory(cmd.OutOrStdout(), cmd.ErrOrStderr(), o.output, historyOf(state, args[0], a.by))
		},
		ValidArgsFunction: completePackages,
	}
	o.registerNamespace(cmd)
	o.register(cmd, formatWide, formatJSON, formatYAML)
	return cmd
}

// approvers are the field managers that own spec.approved of plans.
type approvers struct {
	mu sync.Mutex
	by map[types.NamespacedName]string
}

// see reads the managed fields of plans, which the snapshot does not hold.
func (a *approvers) see(kind *snapshot.Kind, raw []byte) {
	if kind != snapshot.InstallPlans {
		return
	}
	var plan struct {
		Metadata struct {
			Namespace     string `json:"namespace"`
			Name          string `json:"name"`
			ManagedFields []struct {
				Manager string `json:"manager"`
				Fields  struct {
					Spec map[string]any `json:"f:spec"`
				} `json:"fieldsV1"`
			} `json:"managedFields"`
		} `json:"metadata"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &plan) != nil {
		return // the approver is not known
	}
	for _, m := range plan.Metadata.ManagedFields {
		if _, owns := m.Fields.Spec["f:approved"]; owns {
			a.mu.Lock()
			a.by[types.NamespacedName{Namespace: plan.Metadata.Namespace, Name: plan.Metadata.Name}] = m.Manager
			a.mu.Unlock()
		}
	}
}

// historyOf returns what the cluster has of a package, the earliest first.
func historyOf(state *cluster.State, pkg string, approvers map[types.NamespacedName]string) *packageHistory {
	h := &packageHistory{Package: pkg, Plans: []planEvent{}, Policies: []policyEvent{}}
	for ns := range state.Snapshot.All() {
		shown := map[string]bool{}
		for _, plan := range ns.Plans() {
			for _, r := range carrier.Replacements(ns, plan) {
				if r.Package != pkg {
					continue
				}
				shown[r.CSV] = true
				e := eventOf(plan, &r)
				key := types.NamespacedName{Namespace: e.Namespace, Name: e.Plan}
				if e.Approved {
					e.Approver = approvers[key]
				}
				h.Plans = append(h.Plans, e)
			}
		}
		for _, installed := range ns.Installed() {
			if installed.Package == pkg && !shown[installed.CSV] {
				e := planEvent{Namespace: ns.Name(), CSV: installed.CSV, Version: installed.Version,
					Release: installed.Release(), Phase: "installed", Consent: []string{}}
				if stored := state.Snapshot.Find(snapshot.ClusterServiceVersions,
					types.NamespacedName{Namespace: ns.Name(), Name: installed.CSV}); stored != nil {
					e.Created = stored.CreationTimestamp.Time
				}
				h.Plans = append(h.Plans, e)
			}
		}
		for _, p := range ns.Policies() {
			if p.Governs(pkg) {
				h.report(p.Source(), state.Snapshot.OperatorPolicy(p.Concerns(),
					types.NamespacedName{Namespace: p.Namespace, Name: p.Name}))
			}
		}
	}
	slices.SortFunc(h.Plans, func(a, b planEvent) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Plan, b.Plan))
	})
	slices.SortFunc(h.Policies, func(a, b policyEvent) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Policy, b.Policy))
	})
	return h
}

func eventOf(plan *olm.InstallPlan, brings *state.Replacement) planEvent {
	e := planEvent{Namespace: plan.Metadata.Namespace, Plan: plan.Metadata.Name, CSV: brings.CSV,
		Version: brings.Version, Release: brings.Release, Phase: plan.Status.Phase,
		Installed: string(plan.Status.InstalledAt), Approved: plan.Spec.Approved,
		ConsentBy:      plan.Metadata.Annotations.ConsentBy,
		OverrideReason: plan.Metadata.Annotations.OverrideReason, Consent: []string{}}
	e.Created, _ = time.Parse(time.RFC3339, plan.Metadata.CreationTimestamp) // the API server sets it
	for part := range strings.SplitSeq(plan.Metadata.Annotations.Consent, ",") {
		if part = strings.TrimSpace(part); part != "" {
			e.Consent = append(e.Consent, part)
		}
	}
	return e
}

// report adds the messages of a policy; nil is one that does not decode.
func (h *packageHistory) report(source string, op *policyv1beta2.OperatorPolicy) {
	if op == nil {
		return
	}
	for _, e := range op.Status.History {
		h.Policies = append(h.Policies, policyEvent{Policy: source, Time: e.LastTimestamp.Time, Message: e.Message})
	}
}

// maxCell bounds a free text in a table, in bytes.
const maxCell = 160

func printHistory(out, stderr io.Writer, format string, h *packageHistory) error {
	if isData(format) {
		return printData(out, format, h)
	}
	if len(h.Plans)+len(h.Policies) == 0 {
		fmt.Fprintln(stderr, "the cluster has nothing of package "+text.Name(h.Package))
		return nil
	}
	p := newPrinter(out)
	var rows [][]cell
	for i := range h.Plans {
		rows = append(rows, h.Plans[i].row())
	}
	if len(rows) > 0 {
		p.table([]string{"CREATED", "NAMESPACE", "VERSION", "CSV", "PLAN", "PHASE", "INSTALLED", "APPROVED", "CHANGE"},
			rows)
	}
	if format == formatWide && len(h.Policies) > 0 {
		rows = nil
		for _, e := range h.Policies {
			rows = append(rows, []cell{plain(timeText(e.Time)), plain(e.Policy), plain(e.Message)})
		}
		fmt.Fprintln(p)
		p.table([]string{"REPORTED", "POLICY", "MESSAGE"}, rows)
	}
	return p.Flush()
}

func (e *planEvent) row() []cell {
	approved := "no"
	if e.Approved {
		approved = "through " + cmp.Or(e.Approver, "unknown")
	}
	if e.ConsentBy != "" {
		approved += ", consent of " + e.ConsentBy
	}
	if e.OverrideReason != "" {
		approved += ", override: " + e.OverrideReason
	}
	if e.Plan == "" {
		approved = "-"
	}
	color := map[string]string{olm.PhaseComplete: green, olm.PhaseFailed: red,
		olm.PhaseRequiresApproval: yellow}[e.Phase]
	var cells []cell
	for _, s := range []string{timeText(e.Created), e.Namespace, olm.VersionText(e.Version, e.Release), e.CSV, e.Plan} {
		cells = append(cells, plain(cmp.Or(s, "-")))
	}
	return append(cells, cell{cmp.Or(e.Phase, "-"), color}, plain(cmp.Or(e.Installed, "-")),
		plain(text.Truncate(approved, maxCell)),
		plain(cmp.Or(text.Truncate(strings.Join(e.Consent, ","), maxCell), "-")))
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
