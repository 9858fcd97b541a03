package suggest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/snapshot"
)

// written is what is read of an OperatorPolicy in a file. A patch has a part of it.
type written struct {
	Metadata struct{ Namespace, Name string }
	Spec     struct {
		ComplianceType string
		Subscription   struct{ Name, Namespace, StartingCSV string }
		Versions       []string
		VersionRange   string
		Consent        struct{ Accepted []string }
	}
}

// site is an OperatorPolicy in a file, or a part of one.
type site struct {
	*source
	written
	// spec is the node of its spec, and around are the nodes that it is in.
	spec   *yaml.Node
	around []*yaml.Node
	at     int
	// patch is set for one that does not say what it governs.
	patch bool
}

// place is where it is written.
func (s *site) place() string { return fmt.Sprintf("%s:%d", text.Escape(s.name), s.at) }

// files are the files with policies that the command line names.
type files struct {
	sources []*source
	// state has the policies of a cluster, by which patches govern something.
	state *snapshot.Snapshot
	// faults name files with policies that cannot be edited.
	faults []string
}

// readFiles reads files, and directories with all below them.
func readFiles(names []string, state *snapshot.Snapshot) (*files, error) {
	found := &files{state: state}
	for _, root := range names {
		info, err := os.Stat(root)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			root += string(filepath.Separator) // a link to a directory counts as the directory
		}
		err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && name != root && strings.HasPrefix(entry.Name(), "."):
				return fs.SkipDir
			case !entry.IsDir() && (name == root ||
				slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))):
				return found.read(filepath.Clean(name))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// marksGenerated are words of files that a program writes again.
var marksGenerated = []string{"DO NOT EDIT", "Code generated"}

// read finds the policies of a file.
func (f *files) read(name string) error {
	s, err := readSource(name)
	if err != nil || !bytes.Contains(s.before, []byte(policyv1beta2.Kind)) {
		return err
	}
	fault := func(why string) {
		f.faults = append(f.faults, text.Escape(s.name)+": an OperatorPolicy "+why)
	}
	head, _, _ := bytes.Cut(s.before, []byte("\nkind:"))
	s.documents, err = parse(s.before)
	switch {
	case err != nil && bytes.Contains(s.before, []byte("{{")):
		fault("in a template of another program cannot be edited in place")
	case err != nil:
		fault("in a file that is not YAML cannot be edited: " + text.Escape(err.Error()))
	case slices.ContainsFunc(marksGenerated, func(mark string) bool { return bytes.Contains(head, []byte(mark)) }):
		fault("in a generated file cannot be edited in place: edit what it is generated from")
	default:
		f.sources = append(f.sources, s)
		f.find(s, fault)
	}
	return nil
}

// find finds the policies in the documents of a file, whatever object carries them.
func (f *files) find(s *source, fault func(string)) {
	s.sites = nil
	var in func(n *yaml.Node, around []*yaml.Node)
	in = func(n *yaml.Node, around []*yaml.Node) {
		around = append(slices.Clip(around), n)
		if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "kind: "+policyv1beta2.Kind) {
			fault(fmt.Sprintf("in a text, on line %d, cannot be edited in place", n.Line))
		}
		version, kind := fieldOf(n, "apiVersion"), fieldOf(n, "kind")
		if version == nil || kind == nil || kind.Value != policyv1beta2.Kind ||
			!strings.HasPrefix(version.Value, policyv1beta2.GroupVersion.Group+"/") {
			for _, child := range n.Content {
				in(child, around)
			}
			return
		}
		found := &site{source: s, spec: fieldOf(n, "spec"), around: around, at: n.Line}
		if found.spec == nil {
			return // a reference
		}
		if err := found.decode(n); err != nil {
			fault(fmt.Sprintf("on line %d cannot be read: %s", n.Line, text.Escape(err.Error())))
			return
		}
		f.complete(found)
		s.sites = append(s.sites, found)
	}
	for _, document := range s.documents {
		in(document, nil)
	}
}

// decode reads the fields of a policy, as the API server names them.
func (s *site) decode(n *yaml.Node) error {
	var content any
	if err := n.Decode(&content); err != nil {
		return err
	}
	raw, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, &s.written)
}

// complete sets what a patch governs, as the policy of a cluster of the same name does.
func (f *files) complete(at *site) {
	if at.patch = at.Spec.Subscription.Name == ""; !at.patch {
		return
	}
	for ns := range f.state.All() {
		for _, p := range ns.Policies() {
			if at.Metadata.Name == p.Name && (at.Metadata.Namespace == "" || at.Metadata.Namespace == p.Namespace) {
				at.Spec.Subscription.Name, at.Spec.Subscription.Namespace = p.Package, p.TargetNamespace
			}
		}
	}
}

// sites returns the policies in all files.
func (f *files) sites() (all []*site) {
	for _, s := range f.sources {
		all = append(all, s.sites...)
	}
	return all
}

// fieldOf returns the value of a field that is written in a mapping; nil if there is none.
func fieldOf(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	if field := yaml.NewRNode(n).Field(name); field != nil {
		return field.Value.YNode()
	}
	return nil
}

// node returns the node of a value in the spec that is to be edited. It is an error if the value comes from an anchor,
// or others have it by one, or another program replaces it.
func (s *site) node(path ...string) (*yaml.Node, error) {
	n, above := s.spec, append(slices.Clip(s.around), s.spec)
	for _, name := range path {
		n = fieldOf(n, name)
		above = append(above, n)
	}
	field := "spec." + strings.Join(path, ".")
	switch {
	case n == nil || n.Kind == yaml.AliasNode:
		return nil, fmt.Errorf("%s: %s comes from an anchor, and cannot be edited in place", s.place(), field)
	case s.aliased(above):
		return nil, fmt.Errorf("%s: others have %s by an anchor, and it cannot be edited in place", s.place(), field)
	case slices.ContainsFunc(append([]*yaml.Node{n}, n.Content...), func(v *yaml.Node) bool {
		return strings.Contains(v.Value, "{{") || strings.Contains(v.Value, "${")
	}):
		return nil, fmt.Errorf("%s: %s has a template, and cannot be edited in place", s.place(), field)
	}
	return n, nil
}

// aliased reports whether there is an alias of one of the nodes.
func (s *site) aliased(nodes []*yaml.Node) (found bool) {
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		found = found || n.Kind == yaml.AliasNode && slices.Contains(nodes, n.Alias)
		for _, child := range n.Content {
			walk(child)
		}
	}
	for _, document := range s.documents {
		walk(document)
	}
	return found
}
