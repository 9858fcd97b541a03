package docs

import (
	"cmp"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/rules"
)

// pages returns the documents for users by their path from the root: not notes on decisions and changes, which name
// what there was at the time.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := source(t, ".md")
	maps.DeleteFunc(all, func(name, _ string) bool {
		return name == "CHANGELOG.md" || strings.HasPrefix(name, "docs/decisions/2") ||
			strings.Contains(name, "testdata/")
	})
	return all
}

var (
	comment       = regexp.MustCompile(`(?m)\s#\s.*$`)
	separators    = regexp.MustCompile(`\n|&&|[|;]|\$\(`)
	flagWord      = regexp.MustCompile(`^\[*--([a-z][a-z0-9-]*)`)
	listedFlag    = regexp.MustCompile(`^(.* --[a-z0-9-]+) `)
	makeTarget    = regexp.MustCompile(`^([a-z0-9-]+):`)
	calledCommand = regexp.MustCompile(
		`(?m)(?:^|[|$(] ?|kubectl )(opgate|opgate-server|make)(?: -s)? ([a-z][a-z0-9-]+)\b`)
	earlierID      = regexp.MustCompile("(?m)^\\| `([a-z]+/[a-z-]+)` \\| `")
	metricName     = regexp.MustCompile(`\bopgate_[a-z_]+\b`)
	metricSuffix   = regexp.MustCompile(`_(bucket|count|sum)$`)
	ruleID         = regexp.MustCompile(`^[a-z]+/[a-z-]+$`)
	valuePath      = regexp.MustCompile(`^[a-zA-Z]+(\.[a-zA-Z]+)+$`)
	alertName      = regexp.MustCompile(`\bOpgate[A-Z]\w+`)
	repositoryPath = regexp.MustCompile(`^[a-z]+/[\w./*-]+$`)
	markdownLink   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// projectURL is a file of the project as programs and the chart link it, with a heading; the README for none.
	projectURL  = regexp.MustCompile(`https://github\.com/opgate/opgate(?:/blob/main/([\w./-]*\w))?#([\w-]+)`)
	fencedBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	headingLine = regexp.MustCompile(`(?m)^#+ (.*)$`)
	linkText    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`)
)

// inCode matches what documents write as code: a block, or a span in a line.
var inCode = regexp.MustCompile("(?s)```\\w*\n(.*?)```|`([^`\n]+)`")

// code returns what a document has as code.
func code(text string) (found []string) {
	for _, m := range inCode.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1]+m[2])
	}
	return found
}

// lines returns the lines of a file.
func lines(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// foreignFlags are flags of other programs that documents name without the program.
var foreignFlags = strings.Fields(
	"admission-control-config-file cascade certificate-identity certificate-oidc-issuer cpu-profiles exclude force " +
		"all force-conflicts key memory-limit namespaces reset-then-reuse-values reuse-values set take-ownership tracing-config-file validate")

// commandLine is one call of a program, with the flags in it.
type commandLine struct {
	program, command string
	flags            []string
}

// calls returns the calls in code, comments left out: each part of a pipeline is one. The program is empty where the
// code begins with a flag.
func calls(code string) (found []commandLine) {
	code = comment.ReplaceAllString(strings.ReplaceAll(code, "\\\n", " "), "")
	for _, part := range separators.Split(code, -1) {
		words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(part), "$ "))
		if len(words) > 0 && strings.HasPrefix(words[0], "bin/") {
			words[0] = path.Base(words[0])
		}
		if len(words) > 1 && words[0] == "kubectl" && words[1] == "opgate" {
			words = words[1:]
		}
		call := commandLine{}
		if len(words) > 0 && !strings.HasPrefix(words[0], "-") {
			call.program = words[0]
		}
		if len(words) > 1 {
			call.command = words[1]
		}
		for _, word := range words {
			if m := flagWord.FindStringSubmatch(word); m != nil {
				call.flags = append(call.flags, m[1])
			}
		}
		found = append(found, call)
	}
	return found
}

// ownFlags returns the flags of opgate and opgate-server, each as "program command --flag".
func ownFlags(t *testing.T) (flags map[string]bool) {
	t.Helper()
	flags = map[string]bool{}
	for _, list := range []string{"stability/opgate.txt", "stability/opgate-server.txt"} {
		for _, line := range lines(t, list) {
			if m := listedFlag.FindStringSubmatch(line); m != nil {
				flags[m[1]] = true
			}
		}
	}
	return flags
}

// TestFlagsExist looks up every flag that a document has as code: in a call of opgate or opgate-server those of its
// command, alone those of any command, and of other programs if foreignFlags has them.
func TestFlagsExist(t *testing.T) {
	own := ownFlags(t)
	anywhere := map[string]bool{"help": true}
	for name := range own {
		anywhere[name[strings.LastIndex(name, " --")+3:]] = true
	}
	for _, name := range foreignFlags {
		anywhere[name] = true
	}
	compared := 0
	for name, text := range pages(t) {
		for _, code := range code(text) {
			for _, call := range calls(code) {
				for _, flag := range call.flags {
					var known bool
					switch call.program {
					case "":
						known = anywhere[flag]
					case "opgate", "opgate-server":
						ofCommand := own[call.program+" "+call.command+" --"+flag]
						known = flag == "help" || ofCommand || own[call.program+" --"+flag]
					default:
						continue
					}
					compared++
					if !known {
						t.Errorf("%s names --%s in %q", name, flag, code)
					}
				}
			}
		}
	}
	if compared < 100 {
		t.Errorf("only %d flags were compared", compared)
	}
}

// TestCommandsExist looks up commands of opgate and targets of make.
func TestCommandsExist(t *testing.T) {
	known := map[string]bool{}
	for _, list := range []string{"stability/opgate.txt", "stability/opgate-server.txt"} {
		for _, line := range lines(t, list) {
			words := strings.Fields(line)
			if len(words) > 1 && !strings.HasPrefix(words[1], "-") {
				known[words[0]+" "+words[1]] = true
			}
		}
	}
	for _, line := range lines(t, "../Makefile") {
		if m := makeTarget.FindStringSubmatch(line); m != nil {
			known["make "+m[1]] = true
		}
	}
	for name, text := range pages(t) {
		for _, code := range code(text) {
			for _, m := range calledCommand.FindAllStringSubmatch(code, -1) {
				if !known[m[1]+" "+m[2]] {
					t.Errorf("%s names the command %s %s in %q", name, m[1], m[2], code)
				}
			}
		}
	}
}

// TestNamesExist looks up rule IDs, metrics, alerts and values of the chart that a document has as code.
func TestNamesExist(t *testing.T) {
	known := map[string]bool{}
	for _, list := range []string{"alerts", "metrics", "rules"} {
		for _, line := range lines(t, "stability/"+list+".txt") {
			known[strings.Fields(line)[0]] = true
		}
	}
	for _, m := range earlierID.FindAllStringSubmatch(rulesEarlier(t), -1) {
		known[m[1]] = true
	}
	groups := map[string]bool{}
	for _, r := range slices.Concat(rules.GateRules(), rules.Rules()) {
		group, _, _ := strings.Cut(string(r.ID), "/")
		groups[group] = true
	}
	top := map[string]bool{}
	for _, line := range lines(t, "stability/values.txt") {
		value, _, _ := strings.Cut(line, " = ")
		for parent := value; parent != ""; parent = parent[:max(0, strings.LastIndex(parent, "."))] {
			known[parent] = true
		}
		if group, _, nested := strings.Cut(value, "."); nested {
			top[group] = true
		}
	}
	for name, text := range pages(t) {
		for _, code := range code(text) {
			for _, m := range metricName.FindAllString(code, -1) {
				metric := metricSuffix.ReplaceAllString(m, "")
				if !known[metric] && !strings.HasPrefix(m, "opgate_linux") {
					t.Errorf("%s names the metric %s", name, m)
				}
			}
			if group, _, ok := strings.Cut(code, "/"); ok && groups[group] && ruleID.MatchString(code) && !known[code] {
				t.Errorf("%s names the rule %s", name, code)
			}
			if group, _, ok := strings.Cut(code, "."); ok && top[group] && valuePath.MatchString(code) &&
				!known[code] && !ofOLM.MatchString(code) {
				t.Errorf("%s names the value %s", name, code)
			}
		}
		for _, m := range alertName.FindAllString(text, -1) {
			if !known[m] {
				t.Errorf("%s names the alert %s", name, m)
			}
		}
	}
}

// ofOLM matches labels and properties of OLM, files, and names of package olm, that look like values of the chart; olm.identities is an
// earlier value.
var ofOLM = regexp.MustCompile(
	`^olm\.(package|catalogSource|catalogImageTemplate|managed|contentEncoding|properties|permissions|copiedFrom|skipRange|owner|operatorGroup|operatorNamespace|targetNamespaces|constraint|maxOpenShiftVersion|bundle|csv|gvk|label|kubeversion|identities|operatorframework)\b|^olm\.[A-Z]|\.go$`)

func rulesEarlier(t *testing.T) string {
	t.Helper()
	_, after, found := strings.Cut(document(t, "rules.md"), "## Earlier IDs")
	if !found {
		t.Fatal("rules.md has no earlier IDs")
	}
	return after
}

// TestPathsExist looks up paths of the repository, and declarations of its code, that a document has as code, and the
// targets of its links: files, and headings within them.
func TestPathsExist(t *testing.T) {
	all := source(t, ".md")
	slugs := map[string]map[string]bool{}
	for name, text := range all {
		slugs[name] = headings(text)
	}
	roots := map[string]bool{}
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() && entry.Name() != "bin" {
			roots[entry.Name()] = true
		}
	}
	packages := declarations(t)
	for name, text := range pages(t) {
		for _, code := range code(text) {
			folder, declared, _ := strings.Cut(code, ".")
			if names := packages[folder]; names != nil && declared != "" && declared != "md" {
				if fields := folder == "olm" || folder == "catalog"; !names[declared] && !fields {
					t.Errorf("%s names %s, which is not declared", name, code)
				}
				continue
			}
			root, _, _ := strings.Cut(code, "/")
			if !roots[root] || !repositoryPath.MatchString(code) || strings.HasSuffix(code, "...") {
				continue
			}
			if found, err := filepath.Glob(filepath.Join("..", code)); err != nil || len(found) == 0 {
				t.Errorf("%s names the path %s", name, code)
			}
		}
	}
	for name, text := range pages(t) {
		for _, m := range markdownLink.FindAllStringSubmatch(inCode.ReplaceAllString(text, ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			to := name
			if target != "" {
				to = path.Join(path.Dir(name), target)
				if _, err := os.Stat(filepath.Join("..", to)); err != nil {
					t.Errorf("%s links %s, which does not exist", name, m[1])
					continue
				}
			}
			if anchor != "" && strings.HasSuffix(to, ".md") && !slugs[to][anchor] {
				t.Errorf("%s links %s, where there is no such heading", name, m[1])
			}
		}
	}
}

// TestProjectURLs follows the links of programs, of the chart and of documents to files of the project.
func TestProjectURLs(t *testing.T) {
	found := 0
	for name, text := range source(t, ".go", ".md", ".txt", ".yaml", ".yml", ".json", ".tpl") {
		for _, m := range projectURL.FindAllStringSubmatch(text, -1) {
			target := cmp.Or(m[1], "README.md")
			data, err := os.ReadFile(filepath.Join("..", target))
			if err != nil || strings.HasSuffix(target, ".md") && !headings(string(data))[m[2]] {
				t.Errorf("%s links %s, which does not exist: %v", name, m[0], err)
			}
			found++
		}
	}
	if found == 0 {
		t.Error("nothing links the project: the expression finds none")
	}
}

// headings returns the anchors of a document, as GitHub makes them of its headings.
func headings(text string) map[string]bool {
	anchors := map[string]bool{}
	text = fencedBlock.ReplaceAllString(text, "")
	for _, m := range headingLine.FindAllStringSubmatch(text, -1) {
		title := linkText.ReplaceAllString(m[1], "$1")
		slug := notInAnchor.ReplaceAllString(strings.ToLower(title), "")
		anchors[strings.ReplaceAll(strings.TrimSpace(slug), " ", "-")] = true
	}
	return anchors
}

// TestDecisionsAreListed: every note is in the list of notes.
func TestDecisionsAreListed(t *testing.T) {
	list := document(t, "decisions/README.md")
	notes, err := filepath.Glob("decisions/2*.md")
	if err != nil || len(notes) == 0 {
		t.Fatalf("there are %d notes: %v", len(notes), err)
	}
	for _, note := range notes {
		if strings.Count(list, "]("+filepath.Base(note)+")") != 1 {
			t.Errorf("decisions/README.md does not list %s once", note)
		}
	}
}
