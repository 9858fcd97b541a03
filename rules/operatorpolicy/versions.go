package operatorpolicy

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/verdict"
)

// SplitVersions reads spec.versions: each entry is a ClusterServiceVersion name, which may end with the digest of a
// bundle image, or a comma-separated list of them. White space around names and empty names are dropped, order is kept,
// duplicates are removed. Source: the existing OperatorPolicy controller's interpretation of the field, which has no
// digests.
//
// At most maxVersions+1 names are returned, so that a policy takes neither the time nor the memory of the process.
func SplitVersions(entries []string) []string {
	names, _ := (&reader{templates: true}).list(specPath, entries)
	return names
}

// versions reads spec.versions.
func (r *reader) versions(entries []string) []string {
	path := specPath.Child("versions")
	r.judged(path, entries...)
	names, errs := r.list(path, entries)
	r.add(errs...)
	return names
}

// urgent reads spec.urgent, in which template text is not resolved.
func (r *reader) urgent(entries []string) VersionList {
	path := specPath.Child("urgent")
	names, errs := (&reader{}).list(path, entries)
	if len(names) > maxUrgent {
		errs = field.ErrorList{field.TooMany(path, len(names), maxUrgent)}
	}
	r.add(errs...)
	return newVersionList(names)
}

// list returns the names in a list in the form of spec.versions, and why some of them cannot match the name of any
// ClusterServiceVersion.
func (r *reader) list(path *field.Path, entries []string) (names []string, errs field.ErrorList) {
	seen := map[string]struct{}{}
	for i, entry := range entries {
		passes := r.passes(entry)
		for part := range strings.SplitSeq(entry, ",") {
			name := strings.TrimSpace(part)
			if _, twice := seen[name]; name == "" || twice {
				continue
			}
			seen[name], names = struct{}{}, append(names, name)
			if len(names) > MaxVersions {
				return names, append(errs, field.TooMany(path, -1, MaxVersions))
			}
			if !passes && len(errs) < verdict.MaxFaults {
				errs = append(errs, version(path.Index(i), name)...)
			}
		}
	}
	if len(entries) > 0 && len(names) == 0 {
		errs = append(errs, field.Invalid(path, entries,
			"names no version; list ClusterServiceVersion names, or remove the field to allow every version"))
	}
	return slices.Clip(names), errs
}

// version checks a name of a ClusterServiceVersion, or a name with the digest of a bundle image.
func version(path *field.Path, entry string) field.ErrorList {
	name, digest, _ := strings.Cut(entry, "@")
	r := &reader{}
	if problem := NotASCII(name); problem != "" {
		r.invalid(path, name, problem)
	} else if name != "" {
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			r.invalid(path, name, problem)
		}
	}
	if name == entry {
		return r.errs
	}
	if name == "" {
		r.invalid(path, entry, "must begin with the name of a ClusterServiceVersion, before the digest")
	}
	if !olm.ValidDigest(digest) {
		r.invalid(path, entry,
			"must end with the digest of a bundle image: @sha256: and 64 hexadecimal digits in lower case")
	}
	return r.errs
}

// MaxVersions bounds the names in spec.versions. A policy with more is not valid, and holds what it governs.
const MaxVersions = 10_000

// maxUrgent bounds the names in spec.urgent.
const maxUrgent = 64

// VersionList is spec.versions, prepared for judging.
type VersionList struct {
	// Entries are the names, with their digests, as they are written, and sorted the same in their order.
	Entries, sorted []string
}

func newVersionList(entries []string) VersionList {
	return VersionList{entries, slices.Sorted(slices.Values(entries))}
}

// Names returns the names that are listed, with and without a digest.
func (l *VersionList) Names() []string {
	var names []string
	seen := map[string]bool{}
	for _, entry := range l.Entries {
		if name, _, _ := strings.Cut(entry, "@"); !seen[name] {
			seen[name], names = true, append(names, name)
		}
	}
	return names
}

// Lists reports whether a name is listed for any contents. Names are compared byte by byte: a look-alike is another
// name.
func (l *VersionList) Lists(name string) bool {
	_, listed := slices.BinarySearch(l.sorted, name)
	return listed && !strings.Contains(name, "@") // an entry with a digest is no name
}

// Binds reports whether a name is listed for certain contents only.
func (l *VersionList) Binds(name string) bool { return l.digested(name) && !l.Lists(name) }

// digested reports whether a name is listed with a digest.
func (l *VersionList) digested(name string) bool {
	i, _ := slices.BinarySearch(l.sorted, name+"@")
	return i < len(l.sorted) && strings.HasPrefix(l.sorted[i], name+"@")
}

// BindsTo reports whether a name is listed for a bundle image with a digest; never for "", which is not known.
func (l *VersionList) BindsTo(name, digest string) bool {
	_, listed := slices.BinarySearch(l.sorted, name+"@"+digest)
	return digest != "" && listed
}

// Matches reports whether a name is listed, or is with the digest of a bundle image, which is "" if that is not known.
func (l *VersionList) Matches(name, digest string) bool {
	return l.Lists(name) || l.BindsTo(name, digest)
}

// Mentions reports whether a name is listed with some contents or any.
func (l *VersionList) Mentions(name string) bool { return l.Lists(name) || l.digested(name) }

// RestrictsVersions reports whether the policy allows only some versions of the package.
func (p *Policy) RestrictsVersions() bool {
	return len(p.Versions.Entries) > 0 || p.VersionRange != nil || p.faults != ""
}

// MayBring reports whether the policy allows a ClusterServiceVersion with some contents, as far as its name shows.
func (p *Policy) MayBring(csv string) bool {
	return len(p.Versions.Entries) == 0 || p.Versions.Lists(csv) || p.Versions.Binds(csv) || p.NamesStart(csv)
}

// NamesStart reports whether the policy's own startingCSV is this one; that version is always allowed, but
// only with the contents that spec.versions binds it to, if it does. The Subscription's startingCSV never counts.
func (p *Policy) NamesStart(csv string) bool {
	return p.StartingCSV != "" && p.StartingCSV == csv
}

// AcceptedVersions returns the end of a refusal: which versions would be allowed.
func (p *Policy) AcceptedVersions() string {
	names := p.Versions.Entries
	if p.StartingCSV != "" && !p.Versions.Lists(p.StartingCSV) && !p.Versions.Binds(p.StartingCSV) {
		names = append(names[:len(names):len(names)], p.StartingCSV)
	}
	if len(names) == 1 {
		return "allowed is " + names[0]
	}
	return "allowed are " + text.Names(names, verdict.MaxListed)
}

// ForbiddenText returns what a mustnothave policy forbids.
func (p *Policy) ForbiddenText() string {
	var parts []string
	if len(p.Versions.Entries) > 0 {
		parts = append(parts, text.Names(p.Versions.Entries, verdict.MaxListed))
	} else {
		parts = append(parts, "package "+p.Package)
	}
	if p.VersionRange != nil {
		parts = append(parts, "in range "+text.Quote(p.VersionRange.String()))
	}
	if p.Catalog.Name != "" || p.Catalog.Namespace != "" {
		parts = append(parts, "from "+p.CatalogText())
	}
	return strings.Join(parts, " ")
}

// Acceptance returns what a policy allows.
func (p *Policy) Acceptance() string {
	switch {
	case p.MustNotHave:
		return "the policy is mustnothave for " + p.ForbiddenText()
	case len(p.Versions.Entries) > 0:
		return p.AcceptedVersions()
	case p.VersionRange != nil:
		return "allowed is versionRange " + text.Quote(p.VersionRange.String())
	}
	return ""
}

// JudgesPlans reports whether a policy has to judge every plan of its namespace, since any of them may bring the
// package as a dependency. It is known only once the policy is completed.
func (p *Policy) JudgesPlans() bool {
	_, manual := p.WantsManual()
	return p.Enforced && !p.Incomplete && (p.Package != "" || p.AnyPackage) && manual
}

// judgedPart is a part of a policy for which its plans have to be judged.
type judgedPart struct {
	is func(*Policy) bool
	// because names it.
	because string
	// named is set if it depends on nothing but the name of a ClusterServiceVersion.
	named bool
}

// judgedParts are all of them: with one, in any namespace, OLM must not approve by itself. A field that may hold plans
// is listed here and nowhere else.
var judgedParts = []judgedPart{
	{func(p *Policy) bool { return p.faults != "" }, "the policy cannot be read", false},
	{func(p *Policy) bool { return p.Pending != "" }, "the policy waits for what it depends on", false},
	{func(p *Policy) bool { return len(p.Versions.Entries) > 0 }, "spec.versions is set", true},
	{func(p *Policy) bool { return p.VersionRange != nil }, "spec.versionRange is set", false},
	{func(p *Policy) bool { return p.MustNotHave }, "the policy is mustnothave", false},
	{func(p *Policy) bool { return !p.ApproveUpgrades }, "spec.upgradeApproval is not Automatic", false},
	{func(p *Policy) bool { return p.HoldDeprecated }, "spec.deprecated is Hold", false},
	{func(p *Policy) bool { return p.Consent.Holds() }, "spec.consent holds changes", false},
	{func(p *Policy) bool { return p.CatalogImages.Holds() }, "spec.catalog holds plans", false},
	{func(p *Policy) bool { return p.Calendar.Restricts() }, "spec.approvalWindows or spec.freezes is set",
		false},
	{func(p *Policy) bool { return p.Age.Holds() }, "spec.minimumAge is set", false},
}

// WantsManual reports whether the policy alone, in any namespace, wants installPlanApproval Manual, and why.
func (p *Policy) WantsManual() (because string, manual bool) {
	for i := range judgedParts {
		if judgedParts[i].is(p) {
			return judgedParts[i].because, true
		}
	}
	return "", false
}

// PassesByName reports whether a policy allows a CSV by its name alone, and so with any contents.
func (p *Policy) PassesByName(csv string) bool {
	if slices.ContainsFunc(judgedParts, func(part judgedPart) bool { return !part.named && part.is(p) }) {
		return false
	}
	return p.Catalog == (olm.Catalog{}) && !p.Versions.Binds(csv) && (p.Versions.Lists(csv) || p.NamesStart(csv))
}
