package state

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/internal/kept"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// MaxRecorded bounds the operators in the record of one namespace. It is shared by the namespaces of the policies that
// govern them.
const MaxRecorded = 200

// RecordKey is the key of the record in that ConfigMap.
const RecordKey = "record"

// RecordName returns the name of the ConfigMap, in Opgate's own namespace, with the InstallRecord of a namespace.
func RecordName(namespace string) string { return kept.Installed + namespace }

// RecordedNamespace returns the namespace that a ConfigMap of this name has the record of; ok is false for another
// ConfigMap.
func RecordedNamespace(name string) (namespace string, ok bool) {
	return strings.CutPrefix(name, kept.Installed)
}

// InstallRecord is what OLM has installed in one namespace under a policy or a Constraint. The leader writes it where
// tenants cannot: what they plant or delete in their own namespace is no evidence.
type InstallRecord struct {
	Namespace string `json:"namespace"`
	// UID is that of the namespace: one that is created again under the name has no record.
	UID string `json:"uid,omitempty"`
	// Operators are sorted by package and CSV.
	Operators []RecordedOperator `json:"operators"`
	// Group is the last OperatorGroup beside these; nil if no single one was known, or if it has no account and nothing
	// has been installed.
	Group *RecordedGroup `json:"group,omitempty"`
	// Since is when the API server created the ConfigMap, as RFC 3339 in UTC: since then something governs the
	// namespace.
	Since string `json:"-"`
	// Left is what has no room in a next record.
	Left []fair.Origin `json:"-"`
}

// RecordedOperator is an operator that is installed, or was before its ClusterServiceVersion was deleted.
type RecordedOperator struct {
	Package string `json:"package"`
	// CSV is empty if nothing of the package has been installed since the record of it began; then the rest is empty
	// too.
	CSV     string `json:"csv,omitempty"`
	Version string `json:"version,omitempty"`
	// UID is that of the ClusterServiceVersion.
	UID string `json:"uid,omitempty"`
	// Digest is the hexadecimal olm.CSVSpec.SpecDigest, Annotations the AnnotationsDigest; empty in a record of an
	// earlier release, which the next one sets from what is installed.
	Digest      string `json:"digest,omitempty"`
	Annotations string `json:"annotations,omitempty"`
	// Adopted is set if the contents were there before the record of them began, so that nothing shows that OLM
	// installed them.
	Adopted bool `json:"adopted,omitempty"`
}

// RecordedGroup is an OperatorGroup: for whom, and as which account, OLM installs.
type RecordedGroup struct {
	// Spec is as it was written; one that is too large to be kept is represented by the account and the namespace
	// itself.
	Spec json.RawMessage `json:"spec"`

	spec olm.OperatorGroupSpec
}

// DecodeInstallRecord decodes what Encode returns, in a ConfigMap of a name.
func DecodeInstallRecord(name, encoded string) (*InstallRecord, error) {
	r := &InstallRecord{}
	if err := apijson.Unmarshal([]byte(encoded), r); err != nil {
		return nil, fmt.Errorf("decode the record of a namespace: %w", err)
	}
	if RecordName(r.Namespace) != name {
		return nil, fmt.Errorf("ConfigMap %s has the record of another namespace", name)
	}
	if r.Group != nil {
		if err := apijson.Unmarshal(r.Group.Spec, &r.Group.spec); err != nil {
			return nil, fmt.Errorf("decode the OperatorGroup in the record of a namespace: %w", err)
		}
	}
	return r, nil
}

// Encode returns the JSON of a record; two records are the same if theirs are. It returns "" for nil.
func (r *InstallRecord) Encode() string {
	if r == nil {
		return ""
	}
	data, err := json.Marshal(r)
	if err != nil {
		panic(err) // built from decoded JSON
	}
	return string(data)
}

// All returns the operators of a record, none for nil.
func (r *InstallRecord) All() []RecordedOperator {
	if r == nil {
		return nil
	}
	return r.Operators
}

// Recorded returns what is recorded of a ClusterServiceVersion; nil if nothing is.
func (n *Namespace) Recorded(csv string) *RecordedOperator {
	operators := n.Record().All()
	i := slices.IndexFunc(operators, func(o RecordedOperator) bool { return csv != "" && o.CSV == csv })
	if i < 0 {
		return nil
	}
	return &operators[i]
}

// Planted reports whether a plan may be a tenant's, so that it is no evidence of what installed a
// ClusterServiceVersion: it is older than the record, and what it claims was installed after the record began.
func (n *Namespace) Planted(plan *olm.InstallPlan, csv string) bool {
	r := n.Recorded(csv)
	return r != nil && !r.Adopted && plan.Metadata.CreationTimestamp < n.Record().Since
}

// RecordedGroup returns the recorded OperatorGroup; nil if none is.
func (n *Namespace) RecordedGroup() *olm.OperatorGroupSpec {
	if r := n.Record(); r != nil && r.Group != nil {
		return &r.Group.spec
	}
	return nil
}

// ReplacedBy returns the ClusterServiceVersion of a package that another one replaces, "" for a first installation.
// Where only the record shows it, since it was deleted, ends says so and what ends that; else ends is empty.
func (n *Namespace) ReplacedBy(pkg, by string) (csv, ends string) {
	if csv = n.InstalledOf(pkg, by); csv != "" || pkg == "" {
		return csv, ""
	}
	// What only the status of a Subscription shows does not count as installed: tenants may write it.
	if slices.ContainsFunc(n.Installed(), func(c Installed) bool { return c.Package == pkg && c.Spec != nil }) {
		return "", ""
	}
	for _, o := range n.Record().All() {
		if o.Package == pkg && o.CSV != "" && o.CSV != by {
			return o.CSV, n.RecordEnds()
		}
	}
	return "", ""
}

// RecordEnds says where a record is, and what ends it. Refusals that rest on it end with this.
func (n *Namespace) RecordEnds() string {
	return "; ConfigMap " + text.Name(RecordName(n.Name())) +
		" of Opgate records what was installed here, until a mustnothave policy has removed it, " +
		"no policy or Constraint governs it, or a user with the verb override lets something else be installed"
}

// NextRecord returns what is to be recorded now; nil for nothing. Unresolved is set while it is not known what all
// policies govern: then no record ends.
func (n *Namespace) NextRecord(unresolved bool) *InstallRecord {
	next := &InstallRecord{Namespace: n.Name(), UID: n.known().contents.UID}
	var claims []fair.Claim[RecordedOperator]
	for _, pkg := range n.packagesToRecord(unresolved) {
		claims = append(claims, n.claimsOf(pkg)...)
	}
	kept, left := fair.Within(claims, MaxRecorded)
	next.Operators, next.Left = fair.Rows(kept), left
	if len(next.Operators) == 0 {
		return nil
	}
	slices.SortFunc(next.Operators, func(a, b RecordedOperator) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.CSV, b.CSV))
	})
	installed := slices.ContainsFunc(next.Operators, func(o RecordedOperator) bool { return o.CSV != "" })
	// An account is recorded before anything is installed: with the group and its plan deleted nothing else shows it.
	switch recorded := n.RecordedGroup(); {
	case len(n.Groups()) == 1 && (installed || n.Groups()[0].Spec.ServiceAccount != ""):
		next.Group = &RecordedGroup{Spec: n.Groups()[0].Written(n.Name())}
	case len(n.Groups()) != 1 && recorded != nil && (installed || recorded.ServiceAccount != ""):
		next.Group = n.Record().Group // without a group, or with several, OLM installs nothing: the last one counts
	}
	return next
}

// claimsOf returns what is to be recorded of a package: the first operator for the policies that govern it, what was
// recorded before others, and the rest for the namespace itself, in which tenants write.
func (n *Namespace) claimsOf(pkg string) (claims []fair.Claim[RecordedOperator]) {
	isNew := func(o RecordedOperator) int64 {
		if slices.ContainsFunc(n.Record().All(), func(b RecordedOperator) bool { return b.Package == pkg && b.CSV == o.CSV }) {
			return 0
		}
		return 1
	}
	operators := n.nextOf(pkg)
	slices.SortStableFunc(operators, func(a, b RecordedOperator) int { return cmp.Compare(isNew(a), isNew(b)) })
	for i, o := range operators {
		claim := fair.Claim[RecordedOperator]{Origin: fair.Origin{Namespace: n.Name(), Name: pkg, Created: isNew(o)}, Row: o,
			Weight: 1}
		governing := n.Governing(pkg)
		if i > 0 || len(governing) == 0 {
			claims = append(claims, claim)
			continue
		}
		for _, p := range governing {
			claim.Origin = p.Origin()
			claims = append(claims, claim)
		}
	}
	return claims
}

// packagesToRecord returns the packages to record: those that are recorded and still governed, those of policies, and,
// where a Constraint applies, all that are installed.
func (n *Namespace) packagesToRecord(unresolved bool) []string {
	packages, constrained := sets.New[string](), n.Constrained()
	for _, o := range n.Record().All() {
		if unresolved || constrained || len(n.Governing(o.Package)) > 0 {
			packages.Insert(o.Package)
		}
	}
	for pkg, policies := range n.known().byPackage {
		if slices.ContainsFunc(policies, func(p *operatorpolicy.Policy) bool { return !p.AnyNamespace }) {
			packages.Insert(pkg)
		}
	}
	for i := range n.Installed() {
		if constrained && n.Installed()[i].Spec != nil {
			packages.Insert(n.Installed()[i].Package)
		}
	}
	return sets.List(packages.Delete(""))
}

// nextOf returns what is to be recorded of a package. ClusterServiceVersions that were deleted stay recorded until
// another one is installed.
func (n *Namespace) nextOf(pkg string) []RecordedOperator {
	var before, next []RecordedOperator
	for _, o := range n.Record().All() {
		if o.Package == pkg {
			before = append(before, o)
		}
	}
	for i := range n.Installed() {
		if c := &n.Installed()[i]; c.Package == pkg && c.Spec != nil {
			next = append(next, n.recordOf(c, before))
		}
	}
	if len(next) == 0 && !n.removed(pkg) {
		next = slices.DeleteFunc(before, func(o RecordedOperator) bool { return o.CSV == "" })
	}
	if len(next) == 0 && len(n.Governing(pkg)) > 0 {
		next = []RecordedOperator{{Package: pkg}} // what is installed from now on is not adopted
	}
	return next
}

// recordOf returns what is to be recorded of an installed ClusterServiceVersion. Its first contents count where a
// policy freezes them.
func (n *Namespace) recordOf(c *Installed, before []RecordedOperator) RecordedOperator {
	now := RecordedOperator{Package: c.Package, CSV: c.Name, Version: c.Version, UID: c.UID,
		Digest: hexadecimal(c.Spec.SpecDigest()), Annotations: hexadecimal(c.Spec.AnnotationsDigest()),
		Adopted: len(before) == 0}
	for _, b := range before {
		if b.CSV != c.Name || b.UID != "" && b.UID != c.UID {
			continue
		}
		if len(n.Governing(c.Package)) > 0 {
			now.Digest, now.Annotations = b.Digest, cmp.Or(b.Annotations, now.Annotations)
		}
		now.Adopted = b.Adopted || now.Digest != b.Digest || b.Annotations != "" && now.Annotations != b.Annotations
	}
	return now
}

func hexadecimal(digest [sha256.Size]byte) string { return hex.EncodeToString(digest[:]) }

// removed reports whether a policy forbids a package, and no Subscription to it is left.
func (n *Namespace) removed(pkg string) bool {
	forbids := func(p *operatorpolicy.Policy) bool { return p.Enforced && p.MustNotHave && p.Unreadable() == "" }
	return slices.ContainsFunc(n.Governing(pkg), forbids) && len(n.Subscribers(pkg)) == 0
}

// differsFromPlans reports whether plans have written other contents under a name, and none has written these. Tenants
// may have written the status of a plan before a policy governed the namespace: this is enough to report a difference,
// and never to allow one. It returns false if no plan has the manifest: it was deleted, or refers to an image.
func (n *Namespace) differsFromPlans(csv string, spec *olm.CSVSpec) (differs bool) {
	for _, plan := range n.Plans() {
		if !plan.Spec.Approved {
			continue
		}
		for i := range plan.Status.Steps {
			s := &plan.Status.Steps[i]
			if !s.WritesCSV(csv) || s.Resource.Manifest.Spec == nil || s.Status != "Created" && s.Status != "Present" {
				continue
			}
			if s.Resource.Manifest.Spec.ContentsDigest() == spec.ContentsDigest() {
				return false
			}
			differs = true
		}
	}
	return differs
}

// IsRecorded reports whether contents are those that are recorded of a ClusterServiceVersion, of which a record of an
// earlier release has the spec alone. It returns false without a record.
func (n *Namespace) IsRecorded(csv string, spec *olm.CSVSpec) bool {
	r := n.Recorded(csv)
	return r != nil && r.Digest == hexadecimal(spec.SpecDigest()) &&
		(r.Annotations == "" || r.Annotations == hexadecimal(spec.AnnotationsDigest()))
}

// InstalledAsRecorded reports whether a ClusterServiceVersion is installed with the contents that are recorded of it.
func (n *Namespace) InstalledAsRecorded(csv string) bool {
	c := n.Stored(csv)
	return c != nil && n.IsRecorded(csv, c.Spec)
}

// Drifted reports whether an installed ClusterServiceVersion differs from what is recorded of it or, without a record
// or if its contents were adopted, from its plan. It returns false if neither has its contents.
func (n *Namespace) Drifted(csv string) bool {
	c, r := n.Stored(csv), n.Recorded(csv)
	if c == nil || r != nil && !n.IsRecorded(csv, c.Spec) {
		return c != nil
	}
	return (r == nil || r.Adopted) && n.differsFromPlans(csv, c.Spec)
}

// DriftedOf returns an installed ClusterServiceVersion of a package that differs from its plan, or "".
func (n *Namespace) DriftedOf(pkg string) string {
	for _, c := range n.Installed() {
		if c.Package == pkg && n.Drifted(c.Name) {
			return c.Name
		}
	}
	return ""
}
