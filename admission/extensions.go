package admission

import (
	"context"
	"net/http"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

type (
	clusterExtensionRequest = request[olm.ClusterExtension, olm.ClusterExtension]
	clusterCatalogRequest   = request[olm.ClusterCatalog, olm.ClusterCatalog]
)

// addExtensions adds the handlers for the objects of OLM v1. What they judge is in the review and in the snapshot:
// nothing of OLM v1 is watched for them.
func (g *Gate) addExtensions(handlers map[string]http.Handler) {
	handlers[PathValidateClusterExtensions] = &endpoint[olm.ClusterExtension, olm.ClusterExtension]{
		gate: g, kind: "clusterextension", governed: true, judge: g.validateClusterExtension,
		concerns: func(req *clusterExtensionRequest) string { return req.Object.Spec.Namespace }}
	handlers[PathValidateClusterCatalogs] = &endpoint[olm.ClusterCatalog, olm.ClusterCatalog]{
		gate: g, kind: "clustercatalog", governed: true, judge: g.validateClusterCatalog}
}

func (g *Gate) validateClusterExtension(ctx context.Context, s *snapshot.Snapshot,
	req *clusterExtensionRequest) verdict.Verdict {
	in := rules.ClusterExtensionInput{New: req.Object, Old: req.OldObject,
		Namespace: s.WithDependencies(req.Object.Spec.Namespace), Constraints: s.Constraints(), Package: g.offered,
		Now: g.Now(), Interrupt: ctx.Done()}
	v := rules.JudgeClusterExtension(in)
	return g.override(ctx, &v, in.Namespace, req.caller(), in.OverrideAsked())
}

func (g *Gate) validateClusterCatalog(ctx context.Context, s *snapshot.Snapshot,
	req *clusterCatalogRequest) verdict.Verdict {
	return rules.JudgeClusterCatalog(rules.ClusterCatalogInput{New: req.Object, Old: req.OldObject,
		Constraints: s.Constraints(), User: req.User.Username, Groups: req.User.Groups, Interrupt: ctx.Done()})
}
