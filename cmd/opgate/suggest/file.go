package suggest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// file is a file that may have policies.
type file struct {
	name string
	// before is what the file has, after has the edits.
	before, after []byte
	// documents are those of after, policies are those in them, and faults why others cannot be edited.
	documents []*yaml.Node
	policies  []*policy
	faults    []string
}

// policy is an OperatorPolicy in a file, or a part of one.
type policy struct {
	*file
	// written is what is read of it.
	written
	spec *yaml.Node
	line int
	// anchored is set if it is in what others may have by an anchor.
	anchored bool
}

type written struct {
	Metadata struct{ Namespace, Name string }
	Spec     struct {
		ComplianceType string `yaml:"complianceType"`
		Subscription   struct {
			Name, Namespace string
			StartingCSV     string `yaml:"startingCSV"`
		}
		Versions     []string
		VersionRange string `yaml:"versionRange"`
		Consent      struct{ Accepted []string }
	}
}

// place is where it is written.
func (p *policy) place() string { return fmt.Sprintf("%s:%d", text.Escape(p.name), p.line) }

// isNamed reports whether it is what a reason is of: a kustomization may set the namespace.
func (p *policy) isNamed(of verdict.PolicyRef) bool {
	return of.Kind == verdict.KindOperatorPolicy && of.Name == p.Metadata.Name &&
		(p.Metadata.Namespace == "" || of.Namespace == p.Metadata.Namespace)
}

// isSame reports whether two may be parts of one policy.
func (p *policy) isSame(of *policy) bool {
	a, b := p.Metadata, of.Metadata
	return a.Name == b.Name && (a.Namespace == b.Namespace || a.Namespace == "" || b.Namespace == "")
}

// isPatch reports whether it does not say what it governs.
func (p *policy) isPatch() bool { return p.Spec.Subscription.Name == "" }

// governs reports whether it governs a step; a patch does if the policy of its name decides on it.
func (p *policy) governs(s *step) bool {
	if p.isPatch() {
		return slices.ContainsFunc(s.reasons, func(r verdict.Reason) bool { return p.isNamed(r.From) })
	}
	return p.Spec.Subscription.Name == s.pkg && p.Spec.Subscription.Namespace == s.namespace &&
		p.Spec.ComplianceType != string(policyv1beta2.MustNotHave)
}

// readFiles reads files, and directories with all below them.
func readFiles(names []string) (files []*file, err error) {
	for _, root := range names {
		err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && name != root && strings.HasPrefix(entry.Name(), "."):
				return fs.SkipDir
			case entry.IsDir() || name != root &&
				!slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name))):
				return nil
			case slices.ContainsFunc(files, func(f *file) bool { return f.name == filepath.ToSlash(filepath.Clean(name)) }):
				return nil // it is named twice
			}
			f, err := readFile(filepath.Clean(name))
			files = append(files, f)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// readFile reads a file, and finds the policies in it.
func readFile(name string) (*file, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > manifests.MaxInput: // reading a pipe would block
		return nil, fmt.Errorf("%s is not a regular file of at most %d MiB", name, manifests.MaxInput>>20)
	}
	data, err := os.ReadFile(name) //nolint:gosec // a file that the user names
	f := &file{name: filepath.ToSlash(name), before: data, after: data}
	if err != nil || !bytes.Contains(data, []byte(policyv1beta2.Kind)) && !inText.Match(data) {
		return f, err
	}
	head, _, _ := bytes.Cut(data, []byte("\nkind:"))
	if bytes.Contains(head, []byte("DO NOT EDIT")) || bytes.Contains(head, []byte("Code generated")) { // it is written again
		f.fault("in a generated file cannot be edited in place: edit what it is generated from")
		return f, nil
	}
	switch err := f.parse(data); {
	case err != nil && bytes.Contains(data, []byte("{{")):
		f.fault("in a template of another program cannot be edited in place")
	case err != nil:
		f.fault("in a file that is not YAML cannot be edited: " + text.Escape(err.Error()))
	}
	return f, nil
}

func (f *file) fault(why string) {
	f.faults = append(f.faults, text.Escape(f.name)+": an OperatorPolicy "+why)
}

// parse sets what the file has with edits, and finds the policies in it.
func (f *file) parse(data []byte) error {
	documents, _, err := parse(data)
	if err != nil {
		return err
	}
	f.after, f.documents, f.policies, f.faults = data, documents, nil, nil
	for _, document := range documents {
		f.find(document, false)
	}
	return nil
}

// inText is a policy in a text, or the path of a JSON patch that replaces its versions.
var inText = regexp.MustCompile(`kind["']?:\s*["']?` + policyv1beta2.Kind + `\b|/spec/version(s|Range)(["'\s,}]|$)`)

// find finds the policies in a node, whatever object carries them.
func (f *file) find(n *yaml.Node, anchored bool) {
	anchored = anchored || n.Anchor != ""
	if n.Kind == yaml.ScalarNode && inText.MatchString(n.Value) {
		f.fault(fmt.Sprintf("in a text or a JSON patch, on line %d, cannot be edited in place", n.Line))
	}
	version, kind := fieldOf(n, "apiVersion"), fieldOf(n, "kind")
	if version == nil || kind == nil || kind.Value != policyv1beta2.Kind ||
		!strings.HasPrefix(version.Value, policyv1beta2.GroupVersion.Group+"/") {
		for _, child := range n.Content {
			f.find(child, anchored)
		}
		return
	}
	found := &policy{file: f, spec: fieldOf(n, "spec"), line: n.Line, anchored: anchored}
	if found.spec == nil {
		return // a reference
	}
	found.anchored = anchored || found.spec.Anchor != ""
	if err := n.Decode(&found.written); err != nil {
		f.fault(fmt.Sprintf("on line %d cannot be read: %s", n.Line, text.Escape(err.Error())))
		return
	}
	f.policies = append(f.policies, found)
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
func (p *policy) has(field string) bool {
	switch field {
	case "versions":
		return len(p.Spec.Versions) > 0
	case "versionRange":
		return p.Spec.VersionRange != ""
	}
	return fieldOf(p.spec, field) != nil
}

// node returns the node of a value in the spec that is to be edited. It is an error if the value comes from an anchor,
// or others may have it by one, or another program replaces it.
func (p *policy) node(path ...string) (*yaml.Node, error) {
	n, anchored := p.spec, p.anchored
	for _, name := range path {
		n = fieldOf(n, name)
		anchored = anchored || n == nil || n.Kind == yaml.AliasNode || n.Anchor != ""
	}
	if anchored {
		return nil, errors.New("comes from an anchor or has one, and cannot be edited in place")
	}
	for _, v := range append([]*yaml.Node{n}, n.Content...) {
		if strings.Contains(v.Value, "{{") || strings.Contains(v.Value, "${") {
			return nil, errors.New("has a template, and cannot be edited in place")
		}
	}
	return n, nil
}

// parse returns the documents of a file, and what they stand for.
func parse(data []byte) (documents []*yaml.Node, values []any, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		document := &yaml.Node{}
		if err := decoder.Decode(document); errors.Is(err, io.EOF) {
			values, err = valuesOf(documents)
			return documents, values, err
		} else if err != nil {
			return nil, nil, err
		}
		documents = append(documents, document)
	}
}

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
func (f *file) position(n *yaml.Node) (at int) {
	for range n.Line - 1 {
		at += bytes.IndexByte(f.after[at:], '\n') + 1
	}
	line, _, _ := bytes.Cut(f.after[at:], []byte("\n"))
	before := []rune(string(line))
	return at + len(string(before[:min(n.Column-1, len(before))]))
}

// lineEnd returns how lines end: as the last one before an offset does.
func (f *file) lineEnd(at int) string {
	if end := bytes.LastIndexByte(f.after[:at], '\n'); end > 0 && f.after[end-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
