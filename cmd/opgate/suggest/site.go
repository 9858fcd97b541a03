package suggest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
)

// source is a file with policies.
type source struct {
	name string
	// before is what the file has, after has the edits.
	before, after []byte
	// documents are those of after, sites the policies in them, and faults why others cannot be edited.
	documents []*yaml.Node
	sites     []*site
	faults    []string
}

// site is an OperatorPolicy in a file, or a part of one.
type site struct {
	*source
	// written is what is read of it.
	written
	// spec is the node of its spec, and around are the nodes that it is in.
	spec   *yaml.Node
	around []*yaml.Node
	at     int
}

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

// place is where it is written.
func (s *site) place() string { return fmt.Sprintf("%s:%d", text.Escape(s.name), s.at) }

// isNamed reports whether it is a policy, by namespace/name: a kustomization may set the namespace.
func (s *site) isNamed(key string) bool {
	return key == s.Metadata.Namespace+"/"+s.Metadata.Name ||
		s.Metadata.Namespace == "" && strings.HasSuffix(key, "/"+s.Metadata.Name)
}

// isPatch reports whether it does not say what it governs.
func (s *site) isPatch() bool { return s.Spec.Subscription.Name == "" }

// governs reports whether it governs a step; a patch does if the policy of its name decides on it.
func (s *site) governs(step *step) bool {
	if s.isPatch() {
		return slices.ContainsFunc(step.policies, s.isNamed)
	}
	return s.Spec.Subscription.Name == step.pkg && s.Spec.Subscription.Namespace == step.namespace &&
		s.Spec.ComplianceType != string(policyv1beta2.MustNotHave)
}

// readFiles reads files, and directories with all below them.
func readFiles(names []string) (found []*source, err error) {
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
			case entry.IsDir() || name != root &&
				!slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name))):
				return nil
			}
			s, err := readSource(filepath.Clean(name))
			found = append(found, s)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// marksGenerated are words of files that a program writes again.
var marksGenerated = []string{"DO NOT EDIT", "Code generated"}

// readSource reads a file, and finds the policies in it.
func readSource(name string) (*source, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // reading a pipe would block
		return nil, fmt.Errorf("%s is not a regular file", name)
	case info.Size() > manifests.MaxInput:
		return nil, fmt.Errorf("%s is larger than %d MiB", name, manifests.MaxInput>>20)
	}
	data, err := os.ReadFile(name) //nolint:gosec // a file that the user names
	s := &source{name: filepath.ToSlash(name), before: data, after: data}
	if err != nil || !bytes.Contains(data, []byte(policyv1beta2.Kind)) {
		return s, err
	}
	head, _, _ := bytes.Cut(data, []byte("\nkind:"))
	if slices.ContainsFunc(marksGenerated, func(mark string) bool { return bytes.Contains(head, []byte(mark)) }) {
		s.fault("in a generated file cannot be edited in place: edit what it is generated from")
		return s, nil
	}
	switch err := s.read(data); {
	case err != nil && bytes.Contains(data, []byte("{{")):
		s.fault("in a template of another program cannot be edited in place")
	case err != nil:
		s.fault("in a file that is not YAML cannot be edited: " + text.Escape(err.Error()))
	}
	return s, nil
}

func (s *source) fault(why string) {
	s.faults = append(s.faults, text.Escape(s.name)+": an OperatorPolicy "+why)
}

// read sets what the file has with edits, and finds the policies in it.
func (s *source) read(data []byte) error {
	documents, err := parse(data)
	if err != nil {
		return err
	}
	s.after, s.documents, s.sites, s.faults = data, documents, nil, nil
	for _, document := range documents {
		s.find(document, nil)
	}
	return nil
}

// find finds the policies in a node, whatever object carries them.
func (s *source) find(n *yaml.Node, around []*yaml.Node) {
	around = append(slices.Clip(around), n)
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "kind: "+policyv1beta2.Kind) {
		s.fault(fmt.Sprintf("in a text, on line %d, cannot be edited in place", n.Line))
	}
	version, kind := fieldOf(n, "apiVersion"), fieldOf(n, "kind")
	if version == nil || kind == nil || kind.Value != policyv1beta2.Kind ||
		!strings.HasPrefix(version.Value, policyv1beta2.GroupVersion.Group+"/") {
		for _, child := range n.Content {
			s.find(child, around)
		}
		return
	}
	found := &site{source: s, spec: fieldOf(n, "spec"), around: around, at: n.Line}
	if found.spec == nil {
		return // a reference
	}
	var content any
	err := n.Decode(&content)
	if err == nil {
		var raw []byte
		if raw, err = json.Marshal(content); err == nil {
			err = json.Unmarshal(raw, &found.written) // as the API server names the fields
		}
	}
	if err != nil {
		s.fault(fmt.Sprintf("on line %d cannot be read: %s", n.Line, text.Escape(err.Error())))
		return
	}
	s.sites = append(s.sites, found)
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

// has reports whether it has a field.
func (s *site) has(field string) bool {
	switch field {
	case "versions":
		return len(s.Spec.Versions) > 0
	case "versionRange":
		return s.Spec.VersionRange != ""
	}
	return fieldOf(s.spec, field) != nil
}

// node returns the node of a value in the spec that is to be edited. It is an error if the value comes from an anchor,
// or others have it by one, or another program replaces it.
func (s *site) node(path ...string) (*yaml.Node, error) {
	n, above := s.spec, append(slices.Clip(s.around), s.spec)
	for _, name := range path {
		n = fieldOf(n, name)
		above = append(above, n)
	}
	switch {
	case n == nil || n.Kind == yaml.AliasNode:
		return nil, errors.New("comes from an anchor, and cannot be edited in place")
	case slices.ContainsFunc(s.documents, func(document *yaml.Node) bool { return hasAlias(document, above) }):
		return nil, errors.New("is what others have by an anchor, and cannot be edited in place")
	case slices.ContainsFunc(append([]*yaml.Node{n}, n.Content...), func(v *yaml.Node) bool {
		return strings.Contains(v.Value, "{{") || strings.Contains(v.Value, "${")
	}):
		return nil, errors.New("has a template, and cannot be edited in place")
	}
	return n, nil
}

// hasAlias reports whether there is an alias of one of the nodes in another one.
func hasAlias(n *yaml.Node, of []*yaml.Node) bool {
	return n.Kind == yaml.AliasNode && slices.Contains(of, n.Alias) ||
		slices.ContainsFunc(n.Content, func(child *yaml.Node) bool { return hasAlias(child, of) })
}

// parse returns the documents of a file.
func parse(data []byte) (documents []*yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		document := &yaml.Node{}
		if err := decoder.Decode(document); errors.Is(err, io.EOF) {
			return documents, nil
		} else if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
}

// valuesOf returns what documents stand for.
func valuesOf(documents []*yaml.Node) (values []any, err error) {
	for _, document := range documents {
		var value any
		if err := document.Decode(&value); err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

// position returns where a node begins, with its anchor and tag: at the latest where lines end by other characters.
func (s *source) position(n *yaml.Node) (at int) {
	for range n.Line - 1 {
		at += bytes.IndexByte(s.after[at:], '\n') + 1
	}
	line, _, _ := bytes.Cut(s.after[at:], []byte("\n"))
	before := []rune(string(line))
	return at + len(string(before[:min(n.Column-1, len(before))]))
}

// lineEnd returns how lines end: as the last one before an offset does.
func (s *source) lineEnd(at int) string {
	if end := bytes.LastIndexByte(s.after[:at], '\n'); end > 0 && s.after[end-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
