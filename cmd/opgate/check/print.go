package check

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jstemmer/go-junit-report/v2/junit"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// formats write reports.
var formats = map[string]func(io.Writer, *report) error{
	"text": printText, "json": printJSON, "sarif": printSARIF, "junit": printJUnit, "github": printGitHub,
}

// printText writes one block for each object, a summary, the problems and the notes.
func printText(w io.Writer, r *report) error {
	out := bufio.NewWriter(w)
	for i := range r.judged {
		j := &r.judged[i]
		fmt.Fprintf(out, "%-5s %s  (%s)\n", j.outcome(), j.title(), j.Short())
		for _, line := range lines(j) {
			fmt.Fprintln(out, "  "+text.Escape(line))
		}
	}
	if len(r.judged) > 0 {
		fmt.Fprintln(out)
	}
	if len(r.count) == 0 {
		fmt.Fprintln(out, "nothing to judge: "+r.nothing)
	} else {
		fmt.Fprintln(out, r.counts())
	}
	for _, p := range r.problems {
		fmt.Fprintln(out, "problem: "+p.String())
	}
	for _, n := range r.notes {
		fmt.Fprintln(out, n)
	}
	return out.Flush()
}

// lines are printed below an object: why it is refused, what is warned of and would be changed, and what the verdict
// rests on. Each sentence is printed once; the patch is left to the JSON output.
func lines(j *judgement) (lines []string) {
	add := func(line string) {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for _, r := range j.reasons() {
		add(r.Message)
	}
	for _, w := range findings(j) {
		add("warning: " + brief(w))
	}
	// In a refused plan of one ClusterServiceVersion the reasons are complete.
	if j.Decision == verdict.Allow || len(j.CSVs) > 1 {
		for i := range j.CSVs {
			add(j.Operators[i].Describe() + j.Operators[i].Disposition + j.Operators[i].Because())
		}
		for _, note := range j.Notes {
			add(note)
		}
	}
	for _, said := range j.before {
		add("before: " + said)
	}
	return lines
}

// document is the JSON output, in which no list is null.
type document struct {
	Items    []item        `json:"items"`
	Problems []problemItem `json:"problems"`
	Notes    []string      `json:"notes"`
	// ExitCode is that of the command.
	ExitCode int `json:"exitCode"`
}

// problemItem is a problem in the JSON output.
type problemItem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Message string `json:"message"`
	// Operators is set if it concerns operators, or may.
	Operators bool `json:"operators"`
}

// item is one verdict in the JSON output.
type item struct {
	File      string `json:"file"`
	Line      int    `json:"line"`
	Kustomize string `json:"kustomization,omitempty"`
	// Via is what the object is in, and what applies it.
	Via       string                   `json:"via,omitempty"`
	Kind      string                   `json:"kind"`
	Namespace string                   `json:"namespace"`
	Name      string                   `json:"name"`
	Decision  string                   `json:"decision"`
	Reasons   []inspect.Reason         `json:"reasons"`
	Warnings  []string                 `json:"warnings"`
	Patch     []verdict.PatchOperation `json:"patch"`
	// Before is what the old policies say; with --diff.
	Before []string `json:"before,omitempty"`
	// AlreadyApproved is set for a plan that is not judged.
	AlreadyApproved bool `json:"alreadyApproved,omitempty"`
}

func printJSON(w io.Writer, r *report) error {
	d := document{[]item{}, []problemItem{}, []string{}, r.code}
	for i := range r.judged {
		j := &r.judged[i]
		one := item{j.File, j.Line, j.Kustomization, strings.TrimPrefix(j.Via, ", "), j.Kind, j.Namespace, j.Name,
			j.outcome(), inspect.Reasons(j.reasons()), []string{}, verdict.Patch(j.Changes), j.before, j.AlreadyApproved}
		for _, f := range findings(j) {
			one.Warnings = append(one.Warnings, f.Message)
		}
		d.Items = append(d.Items, one)
	}
	for _, p := range r.problems {
		d.Problems = append(d.Problems, problemItem{p.File, p.Line, p.Text, p.Operators})
	}
	for _, n := range r.notes {
		d.Notes = append(d.Notes, n.String())
	}
	return cli.JSON(w, d)
}

// printJUnit writes a test for each object, which fails if the object is not allowed, and one for each problem, which
// could not run if it concerns operators.
func printJUnit(w io.Writer, r *report) error {
	suite := junit.Testsuite{Name: "opgate check"}
	for i := range r.judged {
		j := &r.judged[i]
		c := junit.Testcase{Name: j.titleIn(), Classname: at(j.Place)}
		var why, warnings []string
		for _, reason := range j.reasons() {
			why = append(why, text.Escape(reason.Message))
		}
		for _, f := range findings(j) {
			warnings = append(warnings, "warning: "+text.Escape(brief(f)))
		}
		switch {
		case len(why) > 0:
			c.Failure = &junit.Result{Message: why[0], Type: j.outcome(), Data: strings.Join(why, "\n")}
		case len(warnings) > 0 && r.failOnWarning:
			c.Failure = &junit.Result{Message: warnings[0], Type: "warning", Data: strings.Join(warnings, "\n")}
		}
		if len(warnings) > 0 {
			c.SystemOut = &junit.Output{Data: strings.Join(warnings, "\n")}
		}
		suite.AddTestcase(c)
	}
	for i := range r.problems {
		p := &r.problems[i]
		c := junit.Testcase{Name: text.Escape(p.Text), Classname: at(p.Place)}
		if p.Operators {
			c.Error = &junit.Result{Message: p.String(), Type: "problem"}
		}
		suite.AddTestcase(c)
	}
	if len(r.notes) > 0 {
		var notes []string
		for _, n := range r.notes {
			notes = append(notes, n.String())
		}
		suite.SystemOut = &junit.Output{Data: strings.Join(notes, "\n")}
	}
	var suites junit.Testsuites
	suites.AddSuite(suite)
	return suites.WriteXML(w)
}

// at is a place for programs: "apps/etcd.yaml:3".
func at(p manifests.Place) string {
	return fmt.Sprintf("%s:%d", text.Escape(manifests.DisplayFile(p.File)), max(1, p.Line))
}

// Values in workflow commands of GitHub Actions, and in their properties, end at these characters.
var (
	commandValue    = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	commandProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// printGitHub writes an annotation for each reason, warning and problem, as commands of GitHub Actions, and the rest as
// text.
func printGitHub(w io.Writer, r *report) error {
	out := bufio.NewWriter(w)
	for _, e := range r.entries() {
		if e.level == "note" {
			continue
		}
		where := ""
		if e.File != "" && e.File != cli.StandardInput && e.File != onCluster {
			where = fmt.Sprintf("file=%s,line=%d,", commandProperty.Replace(text.Escape(e.File)), max(1, e.Line))
		}
		fmt.Fprintf(out, "::%s %stitle=%s::%s\n", e.level, where, commandProperty.Replace("opgate: "+e.title),
			commandValue.Replace(text.Escape(e.message)))
	}
	fmt.Fprintln(out, r.counts())
	for _, n := range r.notes {
		if !n.Warning {
			fmt.Fprintln(out, n)
		}
	}
	return out.Flush()
}
