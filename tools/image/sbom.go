package image

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// rootModule is Opgate's own, which is listed as the binaries.
const rootModule = "github.com/opgate/opgate"

// noAssertion is what SPDX calls "not looked into".
const noAssertion = "NOASSERTION"

// notInID is what an SPDX identifier cannot hold.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// WriteSBOM writes an SPDX document that lists the modules in each of the binaries, the standard library with them. It
// reads what the linker recorded, so that it states what is in a binary and not what go.mod would allow.
func WriteSBOM(w io.Writer, binaries []Binary, meta Metadata) error {
	bill := bill{seen: map[common.ElementID]bool{}}
	digest := sha256.New()
	for _, binary := range binaries {
		data, err := os.ReadFile(binary.File)
		if err != nil {
			return fmt.Errorf("list what is in %s: %w", binary.File, err)
		}
		digest.Write(data)
		info, err := buildinfo.ReadFile(binary.File)
		if err != nil {
			return fmt.Errorf("list what is in %s: %w", binary.File, err)
		}
		bill.add(binary, sha256.Sum256(data), info, meta.Version)
	}
	return json.Write(&spdx.Document{
		SPDXVersion:    spdx.Version,
		DataLicense:    spdx.DataLicense,
		SPDXIdentifier: "DOCUMENT",
		DocumentName:   "opgate " + meta.Version,
		// A namespace names one document only.
		DocumentNamespace: "https://" + rootModule + "/spdx/" + meta.Version + "-" +
			hex.EncodeToString(digest.Sum(nil)),
		CreationInfo: &spdx.CreationInfo{
			Created: meta.Created.UTC().Format(time.RFC3339),
			Creators: []common.Creator{
				{CreatorType: "Organization", Creator: "Opgate"},
				{CreatorType: "Tool", Creator: rootModule + "/tools/cmd/image"},
			},
		},
		Packages:      bill.packages,
		Relationships: bill.relationships,
	}, w, json.Indent("  "), json.EscapeHTML(false))
}

// bill is a document in the making.
type bill struct {
	packages      []*spdx.Package
	relationships []*spdx.Relationship
	seen          map[common.ElementID]bool
}

// add lists a binary, and what it depends on.
func (b *bill) add(binary Binary, digest [sha256.Size]byte, info *debug.BuildInfo, version string) {
	program := filepath.Base(binary.File)
	opgate := newPackage(rootModule, version, id(program, binary.Platform.String()))
	opgate.PackageFileName = program
	opgate.PackageComment = "the binary for " + binary.Platform.String()
	opgate.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(digest[:])}}
	opgate.PackageLicenseDeclared = "Apache-2.0"
	opgate.PrimaryPackagePurpose = "APPLICATION"
	b.packages = append(b.packages, opgate)
	b.relate("DOCUMENT", common.TypeRelationshipDescribe, opgate)

	// Scanners know Go's standard library by this name, and its version without "go".
	stdlib := strings.TrimPrefix(info.GoVersion, "go")
	b.depend(opgate, newPackage("stdlib", stdlib, id("stdlib", stdlib)))
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		pkg := newPackage(dep.Path, dep.Version, id(dep.Path, dep.Version))
		pkg.PackageSourceInfo = "go.sum " + dep.Sum
		b.depend(opgate, pkg)
	}
}

// depend lists a package unless it is listed, and reports that opgate depends on it.
func (b *bill) depend(opgate, pkg *spdx.Package) {
	if !b.seen[pkg.PackageSPDXIdentifier] {
		b.seen[pkg.PackageSPDXIdentifier] = true
		b.packages = append(b.packages, pkg)
	}
	b.relate(opgate.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, pkg)
}

func (b *bill) relate(from common.ElementID, how string, to *spdx.Package) {
	b.relationships = append(b.relationships, &spdx.Relationship{
		RefA:         common.DocElementID{ElementRefID: from},
		Relationship: how,
		RefB:         common.DocElementID{ElementRefID: to.PackageSPDXIdentifier},
	})
}

func newPackage(name, version string, id common.ElementID) *spdx.Package {
	return &spdx.Package{
		PackageName:             name,
		PackageSPDXIdentifier:   id,
		PackageVersion:          version,
		PackageDownloadLocation: noAssertion,
		PackageLicenseConcluded: noAssertion,
		PackageLicenseDeclared:  noAssertion,
		PackageCopyrightText:    noAssertion,
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager,
			RefType:  common.TypePackageManagerPURL,
			Locator:  "pkg:golang/" + name + "@" + strings.ReplaceAll(version, "+", "%2B"),
		}},
	}
}

func id(parts ...string) common.ElementID {
	return common.ElementID("Package-" + notInID.ReplaceAllString(strings.Join(parts, "-"), "-"))
}
