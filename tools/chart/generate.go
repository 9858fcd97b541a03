package chart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/manifests/crd"
)

// generated is how each generated file begins.
const generated = "# Rendered from manifests/chart/opgate by `make generate`: change the chart.\n"

// Files that hold the objects of the base, by subject.
const (
	definitionsFile = "base/crds.yaml"
	rolesFile       = "base/rbac.yaml"
	webhooksFile    = "base/webhooks.yaml"
	deploymentFile  = "base/deployment.yaml"
	// What an overlay adds to the base, and changes in it.
	certificatesFile = "overlays/cert-manager/certificates.yaml"
	patchFile        = "overlays/cert-manager/patch.yaml"
	// What a component adds to an overlay.
	monitoringFile = "components/monitoring/monitoring.yaml"
)

// optionalRights are the rights that are off by default: the component that grants each, and the value of the chart.
var optionalRights = map[string]string{"definitions": "definitions", "virtual-operators": "virtualOperators",
	"configuration-policies": "configurationPolicies"}

// withoutPart are the components that take a part of the base away, and the values of the chart that do.
var withoutPart = map[string]string{
	"without-ordering":    "ordering.enabled=false",
	"external-definition": "crds.operatorPolicy=external,ordering.enabled=false",
}

func isDeployment(d Document) bool { return d.Kind == "Deployment" }

// Write brings what is made from the chart, and what the chart has from elsewhere, up to date.
func Write(ctx context.Context, helm string, checkout repo.Checkout) error {
	// Anew, so that a definition that is generated no longer is shipped no longer.
	if err := os.RemoveAll(checkout.ChartCRDs()); err != nil {
		return err
	}
	if err := os.CopyFS(checkout.ChartCRDs(), crd.Definitions); err != nil {
		return err
	}
	files, err := Generate(ctx, helm, checkout)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(checkout.Manifests(), name), []byte(text), 0o644); err != nil { //nolint:gosec // a source file
			return err
		}
	}
	return nil
}

// Generate makes the files that are made from the chart. The keys are paths below manifests/.
func Generate(ctx context.Context, helm string, checkout repo.Checkout) (map[string]string, error) {
	base, err := Render(ctx, helm, checkout.Chart(), namespace, "--skip-tests", "--set", "olm.identity="+OLM)
	if err != nil {
		return nil, err
	}
	certManager, err := Render(ctx, helm, checkout.Chart(), namespace, "--skip-tests", "--set",
		"olm.identity="+OLM+",certificates.mode=cert-manager")
	if err != nil {
		return nil, err
	}
	texts := map[string][]string{}
	for _, d := range withoutHelm(base) {
		name := fileOf(d.Kind)
		texts[name] = append(texts[name], d.Text)
	}
	added, changes, err := differences(withoutHelm(base), withoutHelm(certManager))
	if err != nil {
		return nil, err
	}
	texts[certificatesFile], texts[patchFile] = added, changes
	for name, value := range optionalRights {
		granted, err := Render(ctx, helm, checkout.Chart(), namespace, "--skip-tests", "--set",
			"olm.identity="+OLM+",rights."+value+"=true")
		if err != nil {
			return nil, err
		}
		// The flag is a patch in the kustomization of the component: what is rendered here would replace all arguments.
		if texts["components/rights/"+name+"/rbac.yaml"], _,
			err = differences(withoutHelm(base), withoutHelm(granted)); err != nil {
			return nil, err
		}
	}
	for name, values := range withoutPart {
		without, err := Render(ctx, helm, checkout.Chart(), namespace, "--skip-tests", "--set",
			"olm.identity="+OLM+","+values)
		if err != nil {
			return nil, err
		}
		// The flags are in the kustomization of the component, as those of rights.
		without = slices.DeleteFunc(withoutHelm(without), isDeployment)
		others := slices.DeleteFunc(withoutHelm(base), isDeployment)
		if _, texts["components/"+name+"/patch.yaml"], err = differences(others, without); err != nil {
			return nil, err
		}
	}
	monitored, err := Render(ctx, helm, checkout.Chart(), namespace, "--skip-tests", "--set", "olm.identity="+OLM+
		",metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,metrics.dashboard.enabled=true")
	if err != nil {
		return nil, err
	}
	if texts[monitoringFile], _, err = differences(withoutHelm(base), withoutHelm(monitored)); err != nil {
		return nil, err
	}

	files := map[string]string{}
	for name, parts := range texts {
		files[name] = generated + strings.Join(parts, "---\n")
	}
	files["chart/opgate/README.md"], err = readme(checkout)
	return files, err
}

// fileOf is the file that holds objects of a kind.
func fileOf(kind string) string {
	switch kind {
	case "CustomResourceDefinition":
		return definitionsFile
	case "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
		return rolesFile
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return webhooksFile
	default:
		return deploymentFile
	}
}

// helmLabel is a line that is not true of objects that helm does not manage.
var helmLabel = regexp.MustCompile(`(?m)^ +(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n`)

// withoutHelm takes out of documents what is about helm.
func withoutHelm(documents []Document) []Document {
	documents = slices.Clone(documents)
	for i := range documents {
		documents[i].Text = helmLabel.ReplaceAllString(documents[i].Text, "")
	}
	return documents
}

// differences are the documents that only want has, and patches that make the others of it from those of base, and
// remove what it does not have.
func differences(base, want []Document) (added, patches []string, err error) {
	for _, d := range want {
		i := slices.IndexFunc(base, func(b Document) bool { return b.TypeMeta == d.TypeMeta && b.Name == d.Name })
		if i < 0 {
			added = append(added, d.Text)
			continue
		}
		patch, err := patchOf(base[i].Text, d.Text)
		if err != nil {
			return nil, nil, fmt.Errorf("%s %s: %w", d.Kind, d.Name, err)
		}
		if patch != "" {
			patches = append(patches, patch)
		}
	}
	for _, d := range base {
		if slices.ContainsFunc(want, func(w Document) bool { return d.TypeMeta == w.TypeMeta && d.Name == w.Name }) {
			continue
		}
		patch, err := removalOf(d)
		if err != nil {
			return nil, nil, fmt.Errorf("%s %s: %w", d.Kind, d.Name, err)
		}
		patches = append(patches, patch)
	}
	return added, patches, nil
}
