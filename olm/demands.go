package olm

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/text"
)

// unread is a part of an object as its JSON, for when a rule asks for it. Where it is too large to be read it is only why.
type unread struct {
	raw []byte
	why string
}

// UnmarshalJSON keeps what is not too large.
func (u *unread) UnmarshalJSON(raw []byte) error {
	*u = unread{}
	if n := CountValues(raw); n > maxListValues || len(raw) > maxListBytes {
		u.why = fmt.Sprintf("has %d values in %d bytes, more than the %d values and %d bytes that are read", n, len(raw), maxListValues, maxListBytes)
		return nil
	}
	u.raw = bytes.Clone(raw)
	return nil
}

// read decodes it; field names it in the error.
func (u *unread) read(field string, into any) error {
	if u.why != "" {
		return fmt.Errorf("%s of the ClusterServiceVersion %s", field, u.why)
	}
	if len(u.raw) == 0 {
		return nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(u.raw, into); err != nil {
		return fmt.Errorf("%s of the ClusterServiceVersion cannot be read: %w", field, err)
	}
	return nil
}

// Demands are what an operator asks for: by its ClusterServiceVersion, and by the objects of RBAC that its
// plan brings along and that OLM writes with its own rights.
type Demands struct {
	Spec   *CSVSpec
	Grants []*Grants
	// Global is set where OLM makes ClusterRoles of permissions.
	Global bool
}

// Digest is over all that the lists are made of.
func (d *Demands) Digest() [sha256.Size]byte {
	hash := sha256.New()
	hash.Write(d.Spec.Digest[:])
	for _, g := range d.Grants {
		hash.Write(g.digest[:])
	}
	if d.Global {
		hash.Write([]byte{1})
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// ClusterPermissions are the rights on the whole cluster.
func (d *Demands) ClusterPermissions() ([]map[string][]string, error) {
	var rules ruleSet
	if err := rules.addPermissions("clusterPermissions", &d.Spec.clusterPermissions); err != nil {
		return nil, err
	}
	if d.Global {
		if err := rules.addPermissions("permissions", &d.Spec.permissions); err != nil {
			return nil, err
		}
	}
	for _, g := range d.Grants {
		if g.cluster || d.Global {
			if err := rules.addGrants(g, d.Grants); err != nil {
				return nil, err
			}
		}
	}
	return rules.lists, nil
}

// Permissions are the rights in namespaces.
func (d *Demands) Permissions() ([]map[string][]string, error) {
	var rules ruleSet
	if err := rules.addPermissions("permissions", &d.Spec.permissions); err != nil {
		return nil, err
	}
	for _, g := range d.Grants {
		if !g.cluster {
			if err := rules.addGrants(g, d.Grants); err != nil {
				return nil, err
			}
		}
	}
	return rules.lists, nil
}

// Webhooks are the rules of webhooks. A webhook for conversion has none.
func (d *Demands) Webhooks() ([]map[string][]string, error) {
	var webhooks []struct {
		Type  string `json:"type"`
		Rules []struct {
			APIGroups   []string `json:"apiGroups"`
			APIVersions []string `json:"apiVersions"`
			Resources   []string `json:"resources"`
			Operations  []string `json:"operations"`
		} `json:"rules"`
	}
	if err := d.Spec.webhooks.read("webhookdefinitions", &webhooks); err != nil {
		return nil, err
	}
	var lists []map[string][]string
	for _, w := range webhooks {
		for _, r := range w.Rules {
			lists = append(lists, map[string][]string{"type": {w.Type}, "apiGroups": r.APIGroups, "apiVersions": r.APIVersions,
				"resources": r.Resources, "operations": r.Operations})
		}
	}
	return lists, nil
}

type permissionRule struct {
	APIGroups       []string `json:"apiGroups"`
	Resources       []string `json:"resources"`
	ResourceNames   []string `json:"resourceNames"`
	NonResourceURLs []string `json:"nonResourceURLs"`
	Verbs           []string `json:"verbs"`
}

// ruleSet collects rules, each once: OLM makes ClusterRoles of what the ClusterServiceVersion asks for steps of the plan.
type ruleSet struct {
	lists []map[string][]string
	known map[string]bool
}

func (s *ruleSet) add(r permissionRule) {
	var key strings.Builder
	for _, list := range [][]string{r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs, r.Verbs} {
		fmt.Fprintf(&key, "%q", list)
	}
	if s.known[key.String()] {
		return
	}
	if s.known == nil {
		s.known = map[string]bool{}
	}
	s.known[key.String()] = true
	s.lists = append(s.lists, map[string][]string{"apiGroups": r.APIGroups, "resources": r.Resources,
		"resourceNames": r.ResourceNames, "nonResourceURLs": r.NonResourceURLs, "verbs": r.Verbs})
}

func (s *ruleSet) addPermissions(field string, from *unread) error {
	var permissions []struct {
		Rules []permissionRule `json:"rules"`
	}
	if err := from.read(field, &permissions); err != nil {
		return err
	}
	for _, p := range permissions {
		for _, r := range p.Rules {
			s.add(r)
		}
	}
	return nil
}

// addGrants adds the rules of an object of RBAC. A binding adds nothing where its role comes along, and else everything: what a role
// allows that is there already, or comes later, is not known here.
func (s *ruleSet) addGrants(g *Grants, all []*Grants) error {
	switch {
	case g.why != "":
		return fmt.Errorf("%s %s, which comes along, %s", g.kind, text.Name(g.name), g.why)
	case g.role != nil:
		for _, other := range all {
			if other.kind == g.role.Kind && other.name == g.role.Name {
				return nil
			}
		}
		s.add(permissionRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
		s.add(permissionRule{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}})
	}
	for _, r := range g.rules {
		s.add(r)
	}
	return nil
}
