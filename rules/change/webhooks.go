package change

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/opgate/opgate/internal/text"
)

// webhook is an admission webhook of a ClusterServiceVersion or of a webhook configuration.
type webhook struct {
	Name              string                           `json:"name"`
	Rules             []admissionv1.RuleWithOperations `json:"rules"`
	FailurePolicy     *admissionv1.FailurePolicyType   `json:"failurePolicy"`
	MatchPolicy       *admissionv1.MatchPolicyType     `json:"matchPolicy"`
	ObjectSelector    *metav1.LabelSelector            `json:"objectSelector"`
	NamespaceSelector *metav1.LabelSelector            `json:"namespaceSelector"`
	MatchConditions   []admissionv1.MatchCondition     `json:"matchConditions"`
	ClientConfig      admissionv1.WebhookClientConfig  `json:"clientConfig"`

	fields fields
}

// isWebhookConfiguration reports whether an object has admission webhooks.
func (h *header) isWebhookConfiguration() bool {
	return h.group() == admissionv1.GroupName && strings.HasSuffix(h.Kind, "WebhookConfiguration")
}

// target returns what a webhook calls, other than the operator's own pods; empty if it calls these.
func target(config *admissionv1.WebhookClientConfig) string {
	var targets []string
	if config.URL != nil && *config.URL != "" {
		targets = append(targets, text.Quote(*config.URL))
	}
	if service := config.Service; service != nil {
		targets = append(targets, "Service "+text.Name(service.Namespace+"/"+service.Name)+shownTarget(service))
	}
	return strings.Join(targets, ", ")
}

// shownTarget returns the path and the port of a Service, if they are not the defaults.
func shownTarget(service *admissionv1.ServiceReference) string {
	shown := ""
	if service.Port != nil && *service.Port != 443 {
		shown = fmt.Sprintf(", port %d", *service.Port)
	}
	if service.Path != nil && *service.Path != "" {
		shown += ", path " + text.Name(*service.Path)
	}
	return shown
}

// readWebhooks returns the admission webhooks of a bundle by kind and name.
func (c *Contents) readWebhooks() (map[string]*webhook, error) {
	found := map[string]*webhook{}
	for i := range c.spec.WebhookDefinitions {
		d := &c.spec.WebhookDefinitions[i]
		if d.Type == v1alpha1.ConversionWebhook {
			continue
		}
		kind := strings.ToLower(strings.TrimSuffix(string(d.Type), "AdmissionWebhook"))
		w := &webhook{Name: d.GenerateName, Rules: d.Rules, FailurePolicy: d.FailurePolicy, MatchPolicy: d.MatchPolicy,
			ObjectSelector: d.ObjectSelector, fields: fields{}}
		if err := w.fields.readTyped("webhook", d); err != nil {
			return nil, fmt.Errorf("webhook %s cannot be read: %w", text.Name(d.GenerateName), err)
		}
		merge(found, kind, w)
	}
	for i := range c.objects {
		o := &c.objects[i]
		if !o.isWebhookConfiguration() {
			continue
		}
		kind := strings.ToLower(strings.TrimSuffix(o.Kind, "WebhookConfiguration"))
		var configuration struct {
			Webhooks []json.RawMessage `json:"webhooks"`
		}
		if err := json.Unmarshal(o.raw, &configuration); err != nil {
			return nil, fmt.Errorf("%s cannot be read: %w", o, err)
		}
		for _, raw := range configuration.Webhooks {
			w := &webhook{fields: fields{}}
			if err := cmp.Or(json.Unmarshal(raw, w), w.fields.readJSON("webhook", raw)); err != nil {
				return nil, fmt.Errorf("%s cannot be read: %w", o, err)
			}
			merge(found, kind, w)
		}
	}
	return found, nil
}

// merge adds a webhook. Those with the same kind and name get numbers in the order of their contents.
func merge(found map[string]*webhook, kind string, w *webhook) {
	key := text.Name(kind) + " webhook " + text.Name(w.Name)
	for n := 2; found[key] != nil; n++ {
		key = fmt.Sprintf("%s webhook %s (%d)", text.Name(kind), text.Name(w.Name), n)
	}
	found[key] = w
}

// converts returns the names of the CustomResourceDefinitions whose objects webhooks of the ClusterServiceVersion
// convert.
func (c *Contents) converts() sets.Set[string] {
	names := sets.New[string]()
	for i := range c.spec.WebhookDefinitions {
		if d := &c.spec.WebhookDefinitions[i]; d.Type == v1alpha1.ConversionWebhook {
			names.Insert(d.ConversionCRDs...)
		}
	}
	return names
}

func compareWebhooks(s *Set, from, to *Contents) error {
	before, after, err := both(from, to, (*Contents).readWebhooks)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(after) {
		is := after[name]
		was := before[name]
		if was == nil {
			matches, risk := describeTuples(is.tuples())
			s.add(Webhooks, risk, "adds %s: %s", name, matches)
			s.compareTarget(name, &webhook{}, is)
			continue
		}
		s.compareWebhook(name, was, is)
	}
	for _, name := range sets.List(to.converts().Difference(from.converts())) {
		s.add(Webhooks, Notable, "adds conversion webhook of %s", text.Name(name))
	}
	return nil
}

// compareWebhook adds what makes a webhook match more, or do more harm when it fails.
func (s *Set) compareWebhook(name string, was, is *webhook) {
	tuples := is.tuples()
	added, exact := was.uncovered(tuples)
	if !exact {
		s.note("%s: there are too many rules to compare, so all of its rules are shown", name)
	}
	if len(added) > 0 {
		matches, risk := describeTuples(added)
		s.add(Webhooks, risk, "%s also matches: %s", name, matches)
	}
	_, risk := describeTuples(tuples)
	for _, change := range []struct {
		changed bool
		text    string
	}{
		{failsOpen(was) && !failsOpen(is), "refuses what it cannot check now (failurePolicy Fail)"},
		{loosened(requirements(was.ObjectSelector), requirements(is.ObjectSelector)),
			"matches other objects (objectSelector)"},
		{loosened(requirements(was.NamespaceSelector), requirements(is.NamespaceSelector)),
			"matches other namespaces (namespaceSelector)"},
		{loosened(conditions(was), conditions(is)), "matches under other conditions (matchConditions)"},
		{exactMatch(was) && !exactMatch(is), "matches other versions of the same API (matchPolicy Equivalent)"},
	} {
		if change.changed {
			s.add(Webhooks, risk, "%s %s", name, change.text)
		}
	}
	s.compareTarget(name, was, is)
	for _, path := range is.fields.changed(was.fields) {
		s.add(Webhooks, Notable, "%s: %s", name, is.fields.describe(path, was.fields))
	}
}

// compareTarget adds what a webhook calls, if it called something else.
func (s *Set) compareTarget(name string, was, is *webhook) {
	before, after := target(&was.ClientConfig), target(&is.ClientConfig)
	if after != "" && after != before {
		s.add(Webhooks, Risky, "%s calls %s", name, after)
	}
}

func failsOpen(w *webhook) bool {
	return w.FailurePolicy != nil && *w.FailurePolicy == admissionv1.Ignore
}

func exactMatch(w *webhook) bool { return w.MatchPolicy != nil && *w.MatchPolicy == admissionv1.Exact }

// requirements returns what a selector requires; nothing for one that matches everything.
func requirements(s *metav1.LabelSelector) []string {
	if s == nil {
		return nil
	}
	var all []string
	for label, value := range s.MatchLabels {
		all = append(all, fmt.Sprintf("%q In %q", label, []string{value}))
	}
	for _, e := range s.MatchExpressions {
		all = append(all, fmt.Sprintf("%q %s %q", e.Key, e.Operator, sorted(e.Values)))
	}
	return all
}

func conditions(w *webhook) []string {
	var all []string
	for _, c := range w.MatchConditions {
		all = append(all, c.Expression)
	}
	return all
}

// loosened reports whether a requirement is dropped or replaced. More requirements match less.
func loosened(was, is []string) bool { return !sets.New(is...).HasAll(was...) }

// tuple is the smallest part of the rules of a webhook. One with fewer than all lists of a rule matches nothing and has
// no tuples.
type tuple struct{ operation, group, version, resource, scope string }

// maxTuples bounds the tuples of one webhook; the rules of one with more are shown as "*", which they nearly are.
const maxTuples = 20_000

// tuples returns the parts of all rules in order, each once.
func (w *webhook) tuples() []tuple {
	count := 0
	for i := range w.Rules {
		r := &w.Rules[i]
		n := 1
		for _, length := range []int{len(r.Operations), len(r.APIGroups), len(r.APIVersions), len(r.Resources)} {
			n = min(n*length, maxTuples+1)
		}
		if count += n; count > maxTuples {
			return []tuple{{operation: "*", group: "*", version: "*", resource: "*/*", scope: "*"}}
		}
	}
	all := make([]tuple, 0, count)
	for i := range w.Rules {
		r, scope := &w.Rules[i], "*"
		if r.Scope != nil {
			scope = string(*r.Scope)
		}
		for _, operation := range r.Operations {
			for _, group := range r.APIGroups {
				for _, version := range r.APIVersions {
					for _, resource := range r.Resources {
						all = append(all, tuple{string(operation), group, version, resource, scope})
					}
				}
			}
		}
	}
	slices.SortFunc(all, compareTuples)
	return slices.Compact(all)
}

func compareTuples(a, b tuple) int {
	return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource), cmp.Compare(a.operation,
		b.operation), cmp.Compare(a.version, b.version), cmp.Compare(a.scope, b.scope))
}

// covers reports whether a webhook that matches one tuple matches another.
func (t *tuple) covers(other *tuple) bool {
	star := func(a, b string) bool { return a == "*" || a == b }
	return star(t.operation, other.operation) && star(t.group, other.group) && star(t.version, other.version) &&
		star(t.scope, other.scope) && coversResource(t.resource, other.resource)
}

// coversResource reports whether a resource of a rule matches another: "*" is all resources but no subresources, "*/*"
// all of both.
func coversResource(a, b string) bool {
	if a == b || a == "*/*" {
		return true
	}
	resourceA, subA, hasSubA := strings.Cut(a, "/")
	resourceB, subB, hasSubB := strings.Cut(b, "/")
	if hasSubA != hasSubB {
		return false
	}
	return (resourceA == "*" || resourceA == resourceB) && (!hasSubA || subA == "*" || subA == subB)
}

// uncovered returns the tuples that a webhook does not match. exact is false if there are too many to compare.
func (w *webhook) uncovered(tuples []tuple) (added []tuple, exact bool) {
	owned := w.tuples()
	known := make(map[tuple]bool, len(owned))
	var wild []tuple
	for _, t := range owned {
		known[t] = true
		if strings.Contains(t.operation+t.group+t.version+t.resource+t.scope, "*") {
			wild = append(wild, t)
		}
	}
	if len(wild)*len(tuples) > 100*maxComparisons {
		return tuples, slices.Equal(owned, tuples)
	}
	for _, t := range tuples {
		if !known[t] && !slices.ContainsFunc(wild, func(o tuple) bool { return o.covers(&t) }) {
			added = append(added, t)
		}
	}
	return added, true
}

// describeTuples returns "CREATE, UPDATE of pods; CREATE of deployments (apps)", and Risky if the resources are
// Kubernetes' own.
func describeTuples(tuples []tuple) (string, Risk) {
	type target struct{ group, resource string }
	operations := map[target][]string{}
	var targets []target
	risk := Notable
	for _, t := range tuples {
		key := target{t.group, t.resource}
		if operations[key] == nil {
			targets = append(targets, key)
		}
		operations[key] = append(operations[key], t.operation)
		if builtIn(t.group) {
			risk = Risky
		}
	}
	byText := map[string][]string{}
	for _, t := range targets {
		of := text.Names(sorted(operations[t]), maxListed) + " of"
		resource := text.Name(t.resource)
		if t.group != "" {
			resource += " (" + text.Name(t.group) + ")"
		}
		byText[of] = append(byText[of], resource)
	}
	parts := make([]string, 0, len(byText))
	for _, of := range sortedKeys(byText) {
		parts = append(parts, of+" "+text.Join(byText[of], maxListed))
	}
	if len(parts) == 0 {
		return "nothing", risk
	}
	return strings.Join(parts, "; "), risk
}

// builtIn reports whether a group is one of Kubernetes itself, or all groups.
func builtIn(group string) bool {
	return group == "" || group == "*" || !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
