package chart_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// rightsRow is a row of the table in docs/install.md: rights that the account has while values are set.
type rightsRow struct {
	values map[string]string
	rights []string
}

var (
	code     = regexp.MustCompile("`([^`]+)`")
	rightsIn = regexp.MustCompile(`(?m)^## What Opgate's account may do$[^#]*`)
)

// rightsTable reads the table. A right is its namespace, verb, resource and name.
func rightsTable(t *testing.T) []rightsRow {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(checkout.Root, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []rightsRow
	for line := range strings.Lines(rightsIn.FindString(string(page))) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(line, "| `") && !strings.HasPrefix(line, "| always") {
			continue
		}
		row := rightsRow{values: map[string]string{}}
		for _, m := range code.FindAllStringSubmatch(cells[1], -1) {
			path, value, _ := strings.Cut(m[1], ": ")
			row.values[path] = value
		}
		for _, m := range code.FindAllStringSubmatch(cells[2], -1) {
			row.rights = append(row.rights, rightsOf(t, m[1])...)
		}
		rows = append(rows, row)
	}
	if len(rows) < 15 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	return rows
}

// rightsOf expands "namespace: verb,verb resource name; resource".
func rightsOf(t *testing.T, text string) (all []string) {
	t.Helper()
	namespace, what, namespaced := strings.Cut(text, ": ")
	if !namespaced {
		namespace, what = "", text
	}
	verbs, resources, ok := strings.Cut(what, " ")
	if !ok {
		t.Fatalf("%q has no resource", text)
	}
	for resource := range strings.SplitSeq(resources, "; ") {
		for verb := range strings.SplitSeq(verbs, ",") {
			all = append(all, namespace+" "+verb+" "+resource)
		}
	}
	return all
}

// rightsOfAccount returns what the objects allow the account of the pods.
func rightsOfAccount(o objects) (all []string) {
	add := func(namespace string, subjects []rbacv1.Subject, rules []rbacv1.PolicyRule) {
		if !slices.ContainsFunc(subjects,
			func(s rbacv1.Subject) bool { return s.Kind == rbacv1.ServiceAccountKind && s.Name == "opgate" }) {
			return
		}
		for _, rule := range rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range append(slices.Clone(rule.ResourceNames),
						"")[:max(1, len(rule.ResourceNames))] {
						for _, verb := range rule.Verbs {
							all = append(all, strings.TrimRight(namespace+" "+verb+" "+
								strings.TrimRight(resource+"."+group, ".")+" "+name, " "))
						}
					}
				}
			}
		}
	}
	roles := of[*rbacv1.ClusterRole](o)
	for _, binding := range of[*rbacv1.ClusterRoleBinding](o) {
		if role := roles[binding.RoleRef.Name]; role != nil {
			add("", binding.Subjects, role.Rules)
		}
	}
	for _, object := range o {
		binding, ok := object.(*rbacv1.RoleBinding)
		if !ok {
			continue
		}
		for _, object := range o {
			if role, ok := object.(*rbacv1.Role); ok && role.Name == binding.RoleRef.Name &&
				role.Namespace == binding.Namespace {
				add(strings.Replace(binding.Namespace, namespace, baseNamespace, 1), binding.Subjects, role.Rules)
			}
		}
	}
	return all
}

// TestG25RightsAreDocumented: whatever values are set, the account has the rights of the rows that these values enable,
// and no others.
func TestG25RightsAreDocumented(t *testing.T) {
	rows := rightsTable(t)
	narrow := "{certificates: {mode: cert-manager}, policy: {consent: {enabled: false}, backgroundLoop: {enabled: false}}, ordering: {enabled: false}}"
	cases := map[string]string{
		"defaults": "{}",
		"least":    narrow,
		"loop":     "{policy: {backstop: compiled}, ordering: {enabled: false}, rights: {deployments: false, namespaces: false}}",
		"no loop":  "{policy: {backgroundLoop: {enabled: false}}, rights: {definitions: true, virtualOperators: true, configurationPolicies: true}}",
		"most": "{policy: {reports: {enabled: true}}, ordering: {gatekeeper: true}, metrics: {secure: true}, " +
			"rights: {definitions: true, virtualOperators: true, configurationPolicies: true}}",
	}
	for _, right := range []string{"definitions", "virtualOperators", "configurationPolicies"} {
		cases["only "+right] = "{rights: {" + right + ": true}}"
	}
	for name, values := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allowed := map[string]bool{}
			for _, row := range rows {
				if row.enabled(t, values) {
					for _, right := range row.rights {
						allowed[right] = true
					}
				}
			}
			has := map[string]bool{}
			for _, right := range rightsOfAccount(mustRender(t, values)) {
				right = strings.ReplaceAll(right, "namespaces "+namespace, "namespaces "+baseNamespace)
				has[right] = true
				if !allowed[right] {
					t.Errorf("no value that is set names the right:%s", right)
				}
			}
			for right := range allowed {
				if !has[right] {
					t.Errorf("docs/install.md names a right that the account does not have:%s", right)
				}
			}
		})
	}
}

// enabled reports whether all values of a row are those that are set, or else the defaults.
func (r *rightsRow) enabled(t *testing.T, values string) bool {
	t.Helper()
	var set, defaults map[string]any
	text, err := os.ReadFile(filepath.Join(checkout.Chart(), "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for into, from := range map[*map[string]any]string{&set: values, &defaults: string(text)} {
		if err := yaml.Unmarshal([]byte(from), into); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range r.values {
		value, ok := at(set, path)
		if !ok {
			if value, ok = at(defaults, path); !ok {
				t.Fatalf("there is no value %s", path)
			}
		}
		if got, _ := yaml.Marshal(value); strings.TrimSpace(string(got)) != want {
			return false
		}
	}
	return true
}

// at returns the value at a path.
func at(values map[string]any, path string) (any, bool) {
	key, rest, nested := strings.Cut(path, ".")
	value, ok := values[key]
	if !nested || !ok {
		return value, ok
	}
	inner, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	return at(inner, rest)
}
