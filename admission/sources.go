package admission

import (
	"context"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

type (
	catalogSourceRequest = request[olm.CatalogSource, olm.CatalogSource]
	operatorGroupRequest = request[olm.OperatorGroup, olm.OperatorGroup]
)

func (g *Gate) validateCatalogSource(ctx context.Context, s *snapshot.Snapshot,
	req *catalogSourceRequest) verdict.Verdict {
	return rules.JudgeCatalogSource(rules.CatalogSourceInput{New: req.Object, Old: req.OldObject,
		Namespace: s.Namespace(req.Object.Metadata.Namespace), ByOLM: g.OLM.Is(&req.User), User: req.User.Username,
		Groups: req.User.Groups, Interrupt: ctx.Done()})
}

func (g *Gate) validateOperatorGroup(ctx context.Context, s *snapshot.Snapshot,
	req *operatorGroupRequest) verdict.Verdict {
	ns := s.Namespace(req.Object.Metadata.Namespace)
	in := rules.OperatorGroupInput{New: req.Object, Old: req.OldObject, Namespace: ns, ByOLM: g.OLM.Is(&req.User),
		ByOpgate: g.byOpgate(&req.User), User: req.User.Username, Groups: req.User.Groups, Now: g.Now(), Interrupt: ctx.Done()}
	v := rules.JudgeOperatorGroup(in)
	return g.override(ctx, &v, ns, req.caller(), in.OverrideAsked())
}

// Catalogs returns, without a request, a package of a catalog; nil where it is not known. A source with an empty part
// is any catalog that has the package.
type Catalogs interface {
	Get(pkg string, source olm.Catalog) *catalog.Package
}

// offered returns a package of a catalog; nil if it is not known.
func (g *Gate) offered(pkg string, source olm.Catalog) *catalog.Package {
	if g.Catalogs == nil {
		return nil
	}
	return g.Catalogs.Get(pkg, source)
}

type (
	clusterExtensionRequest = request[olm.ClusterExtension, olm.ClusterExtension]
	clusterCatalogRequest   = request[olm.ClusterCatalog, olm.ClusterCatalog]
)

func (g *Gate) validateClusterExtension(ctx context.Context, s *snapshot.Snapshot,
	req *clusterExtensionRequest) verdict.Verdict {
	in := rules.ClusterExtensionInput{New: req.Object, Old: req.OldObject,
		Namespace: s.Namespace(req.Object.Spec.Namespace), Constraints: s.Constraints(), Package: g.offered,
		Now: g.Now(), Interrupt: ctx.Done()}
	v := rules.JudgeClusterExtension(in)
	return g.override(ctx, &v, in.Namespace, req.caller(), in.OverrideAsked())
}

func (g *Gate) validateClusterCatalog(ctx context.Context, s *snapshot.Snapshot,
	req *clusterCatalogRequest) verdict.Verdict {
	return rules.JudgeClusterCatalog(rules.ClusterCatalogInput{New: req.Object, Old: req.OldObject,
		Constraints: s.Constraints(), User: req.User.Username, Groups: req.User.Groups, Interrupt: ctx.Done()})
}
