package olm

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/text"
)

// InstallPlan is operators.coreos.com/v1alpha1 InstallPlan.
type InstallPlan struct {
	Metadata ObjectMeta        `json:"metadata"`
	Spec     InstallPlanSpec   `json:"spec"`
	Status   InstallPlanStatus `json:"status"`

	// contents is the ContentsDigest, once Trim has removed what it covers.
	contents *[sha256.Size]byte
	// bundles are the parsed bundle properties, by their text; nil if they are not kept.
	bundles map[string]Bundle
}

// InstallPlanHead is an InstallPlan without its status: all that is read of the new object in an update of the main
// resource, for which the API server restores the stored status.
type InstallPlanHead struct {
	Metadata ObjectMeta      `json:"metadata"`
	Spec     InstallPlanSpec `json:"spec"`
}

// InstallPlanSpec is written by OLM on create; afterwards only Approved changes.
type InstallPlanSpec struct {
	CSVNames   []string `json:"clusterServiceVersionNames"`
	Approval   string   `json:"approval"`
	Approved   bool     `json:"approved"`
	Generation int64    `json:"generation"`
}

// InstallPlanStatus is written by OLM in a separate request after the create.
type InstallPlanStatus struct {
	Phase string `json:"phase"`
	// Message is OLM's last error with the steps.
	Message       string         `json:"message"`
	BundleLookups []BundleLookup `json:"bundleLookups"`
	Steps         Steps          `json:"plan"`
	// InstalledAt is when OLM completed the plan, as RFC 3339 in UTC; "" if it has not.
	InstalledAt installedAt `json:"conditions"`
	// ServiceAccount is the identity that writes the steps, if the OperatorGroup names one; otherwise OLM writes them
	// with its own rights, which are those of a cluster admin.
	ServiceAccount struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"attenuatedServiceAccountRef"`
}

// The phases of an InstallPlan that rules distinguish. OLM runs a plan in phase Installing without reading
// spec.approved again.
const (
	PhasePlanning         = "Planning"
	PhaseRequiresApproval = "RequiresApproval"
	PhaseInstalling       = "Installing"
	PhaseComplete         = "Complete"
	PhaseFailed           = "Failed"
)

// BundleLookup is the bundle and catalog that a ClusterServiceVersion comes from; only bundle images have one. It omits
// the conditions, which OLM updates, and is comparable with ==.
type BundleLookup struct {
	Path       string  `json:"path"`
	Identifier string  `json:"identifier"`
	Replaces   string  `json:"replaces"`
	Catalog    Catalog `json:"catalogSourceRef"`
	Properties string  `json:"properties"`
}

// installedAt is the time of the condition Installed in the conditions of a plan.
type installedAt string

// UnmarshalJSON takes the first condition Installed that is True.
func (at *installedAt) UnmarshalJSON(raw []byte) error {
	if n, _ := apijson.Measure(raw); n > maxConditionValues {
		return fmt.Errorf("the conditions hold %d values, at most %d are read", n, maxConditionValues)
	}
	var all []struct {
		Type               string `json:"type"`
		Status             string `json:"status"`
		LastTransitionTime string `json:"lastTransitionTime"`
	}
	err := apijson.Unmarshal(raw, &all)
	*at = ""
	for i := range all {
		if c := &all[i]; *at == "" && c.Type == "Installed" && c.Status == "True" {
			*at = installedAt(c.LastTransitionTime)
		}
	}
	return err
}

// AwaitsApproval reports whether OLM asks for approval of a plan that is not approved yet.
func (p *InstallPlan) AwaitsApproval() bool {
	return p.Status.Phase == PhaseRequiresApproval && !p.Spec.Approved
}

// Running reports whether OLM writes the steps of an approved plan.
func (p *InstallPlan) Running() bool { return p.Spec.Approved && p.Status.Phase == PhaseInstalling }

// Finished reports whether OLM has run a plan, or failed to.
func (p *InstallPlan) Finished() bool {
	return p.Status.Phase == PhaseComplete || p.Status.Phase == PhaseFailed
}

// Brings reports whether the status of a plan, which OLM writes, contains a ClusterServiceVersion. The spec may list
// any name.
func (p *InstallPlan) Brings(csv string) bool {
	return slices.ContainsFunc(p.Status.BundleLookups, func(l BundleLookup) bool { return l.Identifier == csv }) ||
		slices.ContainsFunc(p.Status.Steps, func(s Step) bool { return s.WritesCSV(csv) })
}

// Installed reports whether OLM has completed the plan, with a step that wrote a ClusterServiceVersion.
func (p *InstallPlan) Installed(csv string) bool {
	return p.Spec.Approved && p.Status.Phase == PhaseComplete && slices.ContainsFunc(p.Status.Steps, func(s Step) bool {
		return s.WritesCSV(csv) && s.Resolving == csv && (s.Status == "Created" || s.Status == "Present")
	})
}

// OLM notes when it installed a plan before it writes its steps, of which the ClusterServiceVersion is the first; the
// others can take long on a busy cluster. So much later may these and those be created.
const (
	csvTolerance  = 10 * time.Second
	stepTolerance = time.Minute
)

// RanAt reports whether a completed plan may have created a ClusterServiceVersion. Only the API server sets when
// objects were created.
func (p *InstallPlan) RanAt(created string) bool { return p.ranAt(created, csvTolerance) }

func (p *InstallPlan) ranAt(created string, tolerance time.Duration) bool {
	ended, err := time.Parse(time.RFC3339, string(p.Status.InstalledAt))
	return err == nil && created >= p.Metadata.CreationTimestamp &&
		created <= ended.Add(tolerance).UTC().Format(time.RFC3339)
}

// Created reports whether OLM, executing the plan, created the object of one of its steps. The status of a step shows
// it only while the plan runs: OLM repeats steps, and then finds existing objects that it has created itself.
func (p *InstallPlan) Created(step *Step, created string) bool {
	if p.Running() {
		return step.Status == "Created" && created >= p.Metadata.CreationTimestamp
	}
	return p.Spec.Approved && p.Status.Phase == PhaseComplete && p.ranAt(created, stepTolerance)
}

// RunsAs reports whether OLM writes the steps of a plan as the given user: a ServiceAccount of the plan's namespace
// that the OperatorGroup names.
func (p *InstallPlan) RunsAs(user string) bool {
	account := p.Status.ServiceAccount.Name
	return account != "" && p.Running() && user == "system:serviceaccount:"+p.Metadata.Namespace+":"+account
}

// ParseBundles returns the bundle properties in the plan that can be read, by their text. Unless OLM is done with the
// plan, it keeps them for Bundle. It is not safe for concurrent use.
func (p *InstallPlan) ParseBundles() map[string]Bundle {
	if p.bundles != nil || p.Oversized() {
		return p.bundles
	}
	bundles := map[string]Bundle{}
	parse := func(properties string) {
		if _, parsed := bundles[properties]; parsed || properties == "" {
			return
		}
		if b, err := ParseBundle(properties); err == nil {
			bundles[properties] = b
		}
	}
	for i := range p.Status.BundleLookups {
		parse(p.Status.BundleLookups[i].Properties)
	}
	for i := range p.Status.Steps {
		parse(p.Status.Steps[i].Resource.Manifest.Properties)
	}
	if !p.Finished() {
		p.bundles = bundles
	}
	return bundles
}

// Bundle is ParseBundle for bundle properties of the plan. A nil plan keeps none.
func (p *InstallPlan) Bundle(properties string) (Bundle, error) {
	if p != nil {
		if b, parsed := p.bundles[properties]; parsed {
			return b, nil
		}
	}
	return ParseBundle(properties)
}

// BundleDigest returns the digest of the bundle image of a ClusterServiceVersion in the plan; "" if it is not known.
func (p *InstallPlan) BundleDigest(csv string) (digest string) {
	for i := range p.Status.BundleLookups {
		if l := &p.Status.BundleLookups[i]; l.Identifier == csv {
			digest = cmp.Or(digest, ImageDigest(l.Path))
		}
	}
	return digest
}

// Oversized reports whether a plan has too many entries to be judged.
func (p *InstallPlan) Oversized() bool {
	return len(p.Spec.CSVNames)+len(p.Status.Steps)+len(p.Status.BundleLookups) > MaxPlanEntries
}

// ContentsDigest is a SHA-256 of what the plan writes: the object and the manifest of each step, and the bundle of each
// lookup. It omits what OLM updates while a plan runs, such as the status of steps, and is that of the whole plan after
// Trim, too.
func (p *InstallPlan) ContentsDigest() [sha256.Size]byte {
	if p.contents != nil {
		return *p.contents
	}
	hash := sha256.New()
	add := func(kind byte, fields ...string) {
		hash.Write([]byte{kind})
		for _, f := range fields {
			_ = binary.Write(hash, binary.BigEndian, uint64(len(f))) // a hash accepts every write
			hash.Write([]byte(f))
		}
	}
	for i := range p.Status.Steps {
		s := &p.Status.Steps[i]
		r := &s.Resource
		manifest := r.Manifest.Digest()
		add('s', s.Resolving, r.Group, r.Version, r.Kind, r.Name, string(manifest[:]))
	}
	for i := range p.Status.BundleLookups {
		l := &p.Status.BundleLookups[i]
		add('b', l.Path, l.Identifier)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// Trim removes from a stored plan all steps that judging does not read, and the texts of their manifests. Explaining a
// failed plan needs all steps.
func (p *InstallPlan) Trim() {
	for i := range p.Status.Steps {
		r := &p.Status.Steps[i].Resource
		if r.IsRBAC() {
			r.Manifest.grants = r.Grants()
		}
		r.Manifest.inline = r.Kind == KindClusterServiceVersion && r.Inline()
		r.Manifest.subscription = r.Subscription()
		r.Manifest.digest, r.Manifest.text = r.Manifest.Digest(), nil
	}
	contents := p.ContentsDigest()
	p.contents = &contents
	p.Status.Message = text.Truncate(p.Status.Message, maxMessage)
	if p.Status.Phase != PhaseFailed {
		read := slices.DeleteFunc(p.Status.Steps, func(s Step) bool {
			return s.Resource.Kind != KindClusterServiceVersion && s.Resource.Kind != KindSubscription &&
				!s.Resource.IsRBAC() && !s.WritesDefinition()
		})
		p.Status.Steps = append([]Step(nil), read...) // else the array of all steps stays
	}
}
