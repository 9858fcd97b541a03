package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/operator-framework/api/crds"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

const samplesDir = "../../../manifests/samples"

// sample is one file of the samples. Its name ends in the expected result: -allow, -deny, -hold, -warn, or
// -write where the rule is about a write on a cluster. A recipe shows no rule and has any name.
type sample struct {
	path, name, rule, outcome string
	recipe                    bool
	text                      []byte
}

// flags are those of the command that the sample says to try, such as --kubernetes-version.
func (s *sample) flags() []string {
	m := regexp.MustCompile(`(?m)^#   opgate check -f manifests/samples/` + s.name +
		`\.yaml (.*)$`).FindSubmatch(s.text)
	if m == nil {
		return nil
	}
	return strings.Fields(string(m[1]))
}

// everywhere reports whether the sample has a Constraint, which counts in all namespaces.
func (s *sample) everywhere() bool { return bytes.Contains(s.text, []byte("\nkind: Constraint\n")) }

func samples(t *testing.T) (list []sample) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(samplesDir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	header := regexp.MustCompile(`^# (?:rule: (\S+)|recipe)\n#\n# \w`)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		m := header.FindSubmatch(text)
		if m == nil {
			t.Errorf("%s does not begin with a line `# rule: ID`, or `# recipe`, and what the sample shows", name)
			continue
		}
		list = append(list, sample{path: path, name: name, rule: string(m[1]),
			outcome: name[strings.LastIndexByte(name, '-')+1:],
			recipe:  m[1] == nil, text: text})
	}
	return list
}

// judged is the JSON output for arguments.
func judged(t *testing.T, args ...string) (items []item, code int) {
	t.Helper()
	cmd := Command(time.Now)
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(append(args, "-o", "json"))
	if err, ok := errors.AsType[*cli.ExitError](cmd.Execute()); ok {
		code = err.ExitCode()
	}
	var found document
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		t.Fatal(err)
	}
	if len(found.Problems) > 0 || found.ExitCode != code {
		t.Fatalf("%s: exit code %d: %+v", args, code, found)
	}
	return found.Items, code
}

// Every rule has a sample, and the sample shows it.
func TestSamplesShowEveryRule(t *testing.T) {
	shown := map[string]bool{}
	for _, s := range samples(t) {
		items, code := judged(t, append(s.flags(), "-f", s.path)...)
		if s.recipe {
			unexpected := func(warning string) bool { return !bytes.Contains(s.text, []byte("#   "+warning+"\n")) }
			if code != 0 || slices.ContainsFunc(items,
				func(i item) bool { return slices.ContainsFunc(i.Warnings, unexpected) }) {
				t.Errorf("recipe %s is not let through, or with warnings that it does not quote: %v", s.name, items)
			}
			continue
		}
		shown[s.rule] = true
		refused := map[string][]string{}
		var warned []string
		for _, item := range items {
			for _, r := range item.Reasons {
				refused[item.Decision] = append(refused[item.Decision], string(r.Rule))
			}
			warned = append(warned, item.Warnings...)
		}
		warns := slices.ContainsFunc(warned, func(w string) bool { return strings.Contains(w, "("+s.rule+")") })
		ok := false
		switch s.outcome {
		case "allow":
			ok = code == 0 && s.rule == "none"
		case "warn":
			ok = code == 0 && warns
		case "deny":
			ok = slices.Contains(refused["Deny"], s.rule)
		case "hold":
			ok = slices.Contains(refused["Hold"], s.rule)
		case "write":
			// The rule cannot come out here, and the sample says what to try on a cluster.
			ok = !warns && !slices.Contains(slices.Concat(refused["Deny"], refused["Hold"]), s.rule) &&
				regexp.MustCompile(`(?m)^#   kubectl .*`+s.name).Match(s.text)
		}
		if !ok {
			t.Errorf("%s does not show %s as its name says: exit code %d, refused %v, warned %q", s.name, s.rule, code,
				refused, warned)
		}
		if id := strings.ReplaceAll(s.rule, "/", "-"); s.rule != "none" && s.name != id+"-"+s.outcome {
			t.Errorf("%s is about %s, so its name must be %s-%s", s.name, s.rule, id, s.outcome)
		}
	}
	known := []string{"none"}
	for _, rule := range rules.Rules() {
		known = append(known, string(rule.ID))
		if !shown[string(rule.ID)] {
			t.Errorf("no sample has the line `# rule: %s`", rule.ID)
		}
	}
	for rule := range shown {
		if !slices.Contains(known, rule) {
			t.Errorf("there is no rule %s", rule)
		}
	}
}

// The samples do not affect one another, except those with a Constraint: each gets the same verdict with the others as
// alone.
func TestSamplesTogether(t *testing.T) {
	var alone []item
	var all []string
	for _, s := range samples(t) {
		if s.everywhere() {
			continue
		}
		all = append(all, "-f", s.path)
		items, _ := judged(t, "-f", s.path)
		alone = append(alone, items...)
	}
	together, code := judged(t, all...)
	if code != exitRefused {
		t.Errorf("exit code %d, want %d", code, exitRefused)
	}
	if len(together) != len(alone) {
		t.Fatalf("%d objects together, %d alone", len(together), len(alone))
	}
	decisions := map[string]int{}
	for i := range together {
		decisions[together[i].Decision]++
		a, b := mustJSON(t, together[i]), mustJSON(t, alone[i])
		if a != b {
			t.Errorf("together:\n%s\nalone:\n%s", a, b)
		}
	}
	for _, decision := range []string{"Allow", "Deny", "Hold"} {
		if decisions[decision] == 0 {
			t.Errorf("nothing gets %s", decision)
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A real API server accepts every object of the samples: the schemas of the CRDs allow it and
// would prune nothing. What the gate refuses is not checked here.
func TestSamplesFitTheSchemas(t *testing.T) {
	definitions := []*apiextensionsv1.CustomResourceDefinition{crds.Subscription(), crds.InstallPlan(),
		crds.ClusterServiceVersion(),
		crds.OperatorCondition(), crds.OperatorGroup(), crds.CatalogSource()}
	for _, name := range []string{"policy.open-cluster-management.io_operatorpolicies",
		"policy.open-cluster-management.io_policies",
		"policy.open-cluster-management.io_policysets", "operators.coreos.com_constraints"} {
		text, err := os.ReadFile("../../../manifests/crd/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		definitions = append(definitions, &crd)
	}
	schemas := map[string]*apiextensions.JSONSchemaProps{}
	for _, crd := range definitions {
		for _, version := range crd.Spec.Versions {
			props := &apiextensions.JSONSchemaProps{}
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
				version.Schema.OpenAPIV3Schema, props, nil); err != nil {
				t.Fatal(err)
			}
			schemas[crd.Spec.Group+"/"+version.Name+" "+crd.Spec.Names.Kind] = props
		}
	}
	for _, s := range samples(t) {
		for document := range strings.SplitSeq(string(s.text), "\n---\n") {
			var object map[string]any
			if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			if object == nil {
				continue
			}
			kind := object["kind"].(string)
			props := schemas[object["apiVersion"].(string)+" "+kind]
			if props == nil {
				// OLM's package server has no CRD. Those of OLM v1 are in a module that is for e2e alone.
				if !slices.Contains([]string{"Namespace", "Pod", "Service", olm.KindPackageManifest, olm.KindClusterExtension,
					olm.KindClusterCatalog}, kind) {
					t.Errorf("%s: no schema for %s", s.name, kind)
				}
				continue
			}
			validator, _, err := validation.NewSchemaValidator(props)
			if err != nil {
				t.Fatal(err)
			}
			if errs := validation.ValidateCustomResource(nil, object, validator); len(errs) > 0 {
				t.Errorf("%s: %s: %v", s.name, kind, errs)
			}
			structural, err := schema.NewStructural(props)
			if err != nil {
				t.Fatal(err)
			}
			if pruned := pruning.PruneWithOptions(object, structural, true,
				schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(pruned) > 0 {
				t.Errorf("%s: %s: the API server does not know %v", s.name, kind, pruned)
			}
		}
	}
}
