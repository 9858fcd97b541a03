package release

import (
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/opgate/opgate/tools/release/signing"
)

const (
	// ProvenancePredicate is the type of SLSA provenance.
	ProvenancePredicate = "https://slsa.dev/provenance/v1"
	// SBOMPredicate is the type of SPDX documents.
	SBOMPredicate = "https://spdx.dev/Document"
	// LocalBuilder is the builder of what is built outside of a workflow: anyone's machine.
	LocalBuilder = source + "/blob/main/docs/release.md#on-a-machine-of-your-own"

	buildType = source + "/blob/main/docs/release.md#how-it-is-built"
)

// subject names what a statement is about.
func subject(name, sha256 string) *intoto.ResourceDescriptor {
	return &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": sha256}}
}

// statement is a statement with a predicate.
func statement(
	predicateType string, predicate *structpb.Struct, subjects ...*intoto.ResourceDescriptor,
) *intoto.Statement {
	return &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: predicateType, Predicate: predicate,
		Subject: subjects}
}

// signatureStatement states nothing of its subject: the signature is the statement.
func signatureStatement(subjects ...*intoto.ResourceDescriptor) *intoto.Statement {
	return statement(signing.SignPredicate, &structpb.Struct{}, subjects...)
}

// provenance states how a release was made: by whom, from which commit, on which base, with which compiler.
func (b *build) provenance(subjects ...*intoto.ResourceDescriptor) (*intoto.Statement, error) {
	external, err := structpb.NewStruct(map[string]any{
		"version": b.Version.Tag, "base": b.Base, "platforms": names(b.Platforms), "targets": names(b.Targets),
	})
	if err != nil {
		return nil, err
	}
	internal, err := structpb.NewStruct(map[string]any{"uncommittedChanges": b.Commit.Changed})
	if err != nil {
		return nil, err
	}
	p := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType:          buildType,
			ExternalParameters: external,
			InternalParameters: internal,
			ResolvedDependencies: []*intoto.ResourceDescriptor{
				{Uri: "git+" + source, Digest: map[string]string{"gitCommit": b.Commit.Revision}},
			},
		},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: b.Builder,
			Version: map[string]string{"go": runtime.Version()}}},
	}
	if name, digest := b.base.Pulled(); name != "" {
		p.BuildDefinition.ResolvedDependencies = append(p.BuildDefinition.ResolvedDependencies,
			&intoto.ResourceDescriptor{Uri: "docker://" + name,
				Digest: map[string]string{digest.Algorithm: digest.Hex}})
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	data, err := protojson.Marshal(p)
	if err != nil {
		return nil, err
	}
	predicate := &structpb.Struct{}
	if err := protojson.Unmarshal(data, predicate); err != nil {
		return nil, err
	}
	return statement(ProvenancePredicate, predicate, subjects...), nil
}

// sbom states what is in a subject, by an SPDX document.
func sbom(document []byte, subjects ...*intoto.ResourceDescriptor) (*intoto.Statement, error) {
	predicate := &structpb.Struct{}
	if err := protojson.Unmarshal(document, predicate); err != nil {
		return nil, err
	}
	return statement(SBOMPredicate, predicate, subjects...), nil
}

func names(platforms []v1.Platform) []any {
	all := make([]any, len(platforms))
	for i, platform := range platforms {
		all[i] = platform.String()
	}
	return all
}
