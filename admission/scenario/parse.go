package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// Extension ends the names of scenario files.
const Extension = ".txtar"

// Parse reads the scenario that a file holds, for a cluster. Its error is a *Fault.
func Parse(path string, data []byte, versions Versions) (*Scenario, error) {
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	return parse(strings.TrimSuffix(filepath.Base(path), Extension), []byte(versions.Insert(string(data))))
}

// Update returns the text of a scenario file with the message and the warnings that its write got. The decision stays:
// a wrong one needs review. Versions for which the file has placeholders are replaced by them.
func Update(data []byte, message string, warnings []string, versions Versions) []byte {
	var placeholders []string
	for placeholder, version := range map[string]string{KubernetesPlaceholder: versions.Kubernetes,
		OpenShiftPlaceholder: versions.OpenShift} {
		if version != "" && bytes.Contains(data, []byte(placeholder)) {
			placeholders = append(placeholders, version, placeholder)
		}
	}
	abstract := strings.NewReplacer(placeholders...)
	archive := txtar.Parse(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")))
	want := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "want" })
	if want < 0 {
		return data
	}
	decision, _, _ := strings.Cut(string(archive.Files[want].Data), "\n")
	text := strings.TrimSpace(decision) + "\n"
	if message != "" {
		text += message + "\n"
	}
	archive.Files[want].Data = []byte(abstract.Replace(text))
	archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name == "warnings" })
	if len(warnings) > 0 {
		archive.Files = append(archive.Files, txtar.File{Name: "warnings",
			Data: []byte(abstract.Replace(strings.Join(warnings, "\n") + "\n"))})
	}
	return txtar.Format(archive)
}

func parse(name string, data []byte) (*Scenario, error) {
	archive := txtar.Parse(data)
	s := &Scenario{Name: name, Text: data, lines: map[string]int{}}
	if err := s.parseHeaders(string(archive.Comment)); err != nil {
		return nil, err
	}
	line := 1 + strings.Count(string(archive.Comment), "\n")
	for _, f := range archive.Files {
		if _, twice := s.lines[f.Name]; twice {
			return nil, &Fault{line, fmt.Errorf("file %s is defined twice", f.Name)}
		}
		s.lines[f.Name] = line
		if err := s.parseFile(f.Name, f.Data); err != nil {
			at := 0
			if inFile, ok := errors.AsType[*Fault](err); ok {
				at, err = inFile.Line, inFile.Err
			}
			return nil, &Fault{line + at, fmt.Errorf("file %s: %w", f.Name, err)}
		}
		line += 1 + strings.Count(string(f.Data), "\n")
	}
	if of, err := s.validate(); err != nil {
		return nil, &Fault{s.Line(of), err}
	}
	return s, nil
}

func (s *Scenario) parseHeaders(comment string) error {
	title, headers, _ := strings.Cut(comment, "\n\n")
	s.Title = strings.Join(strings.Fields(title), " ")
	number := 2 + strings.Count(title, "\n")
	for line := range strings.Lines("\n" + headers) {
		if line = strings.TrimSpace(line); line != "" {
			if err := s.parseHeader(line, number); err != nil {
				return &Fault{number, err}
			}
		}
		number++
	}
	return nil
}

func (s *Scenario) parseHeader(line string, number int) error {
	key, value, found := strings.Cut(line, ":")
	if !found {
		return fmt.Errorf("header %q has no colon", line)
	}
	if _, twice := s.lines[key]; twice {
		return fmt.Errorf("header %q is defined twice", key)
	}
	s.lines[key] = number
	words := strings.Fields(value)
	switch key {
	case "rules":
		for _, id := range strings.Fields(strings.ReplaceAll(value, ",", " ")) {
			s.Rules = append(s.Rules, verdict.RuleID(id))
		}
	case "threat":
		s.Threat = strings.TrimSpace(value)
	case "user":
		s.User = strings.TrimSpace(value)
	case "do":
		return s.parseDo(words)
	case "with":
		if s.With = words; len(words) == 0 {
			return errors.New("with is empty")
		}
	case "now":
		now, err := time.Parse(time.RFC3339, strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("now %q is not a time as in RFC 3339, such as 2026-11-28T22:00:00Z",
				strings.TrimSpace(value))
		}
		s.Now = now
	default:
		return fmt.Errorf("header %q is not one of rules, threat, user, do, with, now", key)
	}
	return nil
}

func (s *Scenario) parseDo(words []string) error {
	if len(words) == 0 {
		return errors.New("do is empty")
	}
	s.Verb = words[0]
	switch s.Verb {
	case "create", "replace", "replace-status":
		if len(words) == 1 {
			return nil
		}
	case "approve", "patch", "delete":
		if len(words) == 3 {
			if s.Verb == "approve" {
				s.Verb, s.Patch = "patch", []byte(`{"spec":{"approved":true}}`)
			}
			s.Kind, s.Object = words[1], words[2]
			if namespace, name, found := strings.Cut(words[2], "/"); found {
				s.Namespace, s.Object = namespace, name
			}
			return nil
		}
	}
	return fmt.Errorf("do %q is not one of: create, replace, replace-status, approve KIND NS/NAME, patch KIND NS/NAME, "+
		"delete KIND NS/NAME", strings.Join(words, " "))
}

func (s *Scenario) parseFile(name string, data []byte) (err error) {
	switch name {
	case "cluster.yaml":
		s.Cluster, err = objects(data)
	case "policies.yaml":
		s.Policies, err = objects(data)
	case "constraints.yaml": // behind policies.yaml
		var constraints []*unstructured.Unstructured
		constraints, err = objects(data)
		s.Policies = append(s.Policies, constraints...)
	case "catalog.yaml":
		s.Catalog, err = objects(data)
	case "write.yaml":
		var written []*unstructured.Unstructured
		if written, err = objects(data); err == nil && len(written) != 1 {
			return fmt.Errorf("has %d objects and needs one", len(written))
		}
		if err == nil {
			s.Write = written[0]
		}
	case "write.json":
		s.Patch = data
	case "want":
		decision, message, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
		s.Decision, s.Message = decision, strings.TrimSpace(message)
	case "warnings":
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" {
				s.Warnings = append(s.Warnings, line)
			}
		}
		slices.Sort(s.Warnings)
	case "backstop":
		s.Backstop = strings.TrimSpace(string(data))
	case "stored.json":
		s.Stored = data
	default:
		return errors.New("is not a file that scenarios have")
	}
	return err
}

// validate returns what is wrong, and the header or the file that it is wrong in.
func (s *Scenario) validate() (of string, err error) {
	switch allowed := s.Decision == verdict.Allow.String(); {
	case s.Title == "":
		return "", errors.New("there is no title")
	case s.User != "admin" && s.User != "tenant" && s.User != "olm":
		return "user", fmt.Errorf("user %q is not one of admin, tenant, olm", s.User)
	case s.Verb == "":
		return "", errors.New("there is no do header")
	case s.Verb == "delete" && (s.Patch != nil || s.Write != nil):
		return "do", errors.New("a deletion writes nothing")
	case s.Verb == "delete" && s.Decision != verdict.Allow.String():
		return "want", errors.New("no webhook reviews deletions: want is Allow, and backstop what the API server answers")
	case s.Verb != "delete" && ((s.Verb == "patch") != (s.Patch != nil) || (s.Verb == "patch") == (s.Write != nil)):
		return "do", errors.New("needs write.yaml, or write.json for a patch, and not both")
	case !slices.Contains([]string{verdict.Allow.String(), verdict.Deny.String(), verdict.Hold.String()}, s.Decision):
		return "want", fmt.Errorf("wants %q, which is not Allow, Deny or Hold", s.Decision)
	case allowed && s.Backstop != "" && s.Backstop != StoresManual && !s.isHeldDeletion():
		return "backstop", errors.New("the API server refuses what the webhooks allow")
	case allowed && s.Message != "":
		return "want", errors.New("an allowed write has no message")
	}
	for _, rule := range s.Rules {
		if !slices.ContainsFunc(rules.Rules(), func(r verdict.Rule) bool { return r.ID == rule }) {
			return "rules", fmt.Errorf("there is no rule %q", rule)
		}
	}
	for name, patch := range map[string][]byte{"write.json": s.Patch, "stored.json": s.Stored} {
		if patch != nil && !json.Valid(patch) {
			return name, errors.New("a patch is not JSON")
		}
	}
	return "", nil
}

// lineInYAML is how errors of YAML name a line.
var lineInYAML = regexp.MustCompile(`\bline (\d+): `)

// objects decodes documents. Its errors are Faults with lines that are counted from 1 in data.
func objects(data []byte) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	before := 0
	for i, document := range strings.Split("\n"+string(data), "\n---\n") {
		var u unstructured.Unstructured
		if err := yaml.UnmarshalStrict([]byte(document), &u.Object); err != nil {
			line, why := before, err.Error()
			if m := lineInYAML.FindStringSubmatch(why); m != nil {
				n, _ := strconv.Atoi(m[1])                              // digits; too many of them count as none
				line, why = line+n-1, strings.Replace(why, m[0], "", 1) // the file has other lines
			}
			return nil, &Fault{line, fmt.Errorf("document %d: %s", i+1, why)}
		}
		if len(u.Object) > 0 && (u.GetKind() == "" || u.GetAPIVersion() == "" || u.GetName() == "") {
			return nil, &Fault{before, fmt.Errorf("document %d: apiVersion, kind or metadata.name is missing", i+1)}
		}
		if len(u.Object) > 0 {
			list = append(list, &u)
		}
		before += 2 + strings.Count(document, "\n")
	}
	return list, nil
}
