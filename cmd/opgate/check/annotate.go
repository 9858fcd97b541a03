package check

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// title names a judged object: "installplan shop/install-x7".
func (j *judgement) title() string { return strings.ToLower(j.Kind) + " " + j.Key() }

// titleIn is the title with the cluster, of an object that is judged in several.
func (j *judgement) titleIn() string {
	switch {
	case j.with != "":
		return j.title() + " with overlay " + text.Escape(j.with)
	case j.Kustomization != "":
		return j.title() + " built by " + text.Escape(j.Kustomization)
	}
	return j.title()
}

// Values in workflow commands of GitHub Actions, and in their properties, end at these characters.
var (
	commandValue    = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	commandProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// printGitHub writes an annotation for each reason and warning, as commands of GitHub Actions.
func printGitHub(w io.Writer, r *report) error {
	out := bufio.NewWriter(w)
	annotate := func(level string, j *judgement, field, message string) {
		where := ""
		if j.File != cli.StandardInput && j.File != onCluster {
			where = fmt.Sprintf("file=%s,line=%d,", commandProperty.Replace(manifests.PathOf(j.File)),
				max(1, j.LineOf(field)))
		}
		title := commandProperty.Replace("opgate: " + j.Decision.String() + " " + j.titleIn())
		fmt.Fprintf(out, "::%s %stitle=%s::%s\n", level, where, title, commandValue.Replace(text.Escape(message)))
	}
	for i := range r.judged {
		j := &r.judged[i]
		for _, why := range j.Reasons {
			annotate("error", j, why.Field, why.Message)
		}
		for _, f := range findings(j) {
			annotate("warning", j, f.Field, brief(f))
		}
	}
	for _, p := range r.problems {
		fmt.Fprintf(out, "::error file=%s,line=%d,title=opgate%%3A input::%s\n",
			commandProperty.Replace(manifests.PathOf(p.File)), max(1, p.Line),
			commandValue.Replace(p.String()))
	}
	for _, n := range r.notes {
		if n.Warning {
			fmt.Fprintf(out, "::warning title=opgate%%3A input::%s\n", commandValue.Replace(text.Escape(n.Text)))
		}
	}
	fmt.Fprintln(out, r.counts())
	return out.Flush()
}

// JUnit's report, as far as CI systems agree on it.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		File    string        `xml:"file,attr"`
		Line    int           `xml:"line,attr"`
		Failure *junitFailure `xml:"failure"`
		Error   *junitFailure `xml:"error"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// errors are what is no verdict, as tests that could not run.
func (r *report) errors() (cases []junitCase) {
	add := func(at manifests.Place, kind, message string) {
		file := manifests.PathOf(at.File)
		cases = append(cases, junitCase{Name: text.Escape(message), Class: "input", File: file, Line: at.Line,
			Error: &junitFailure{Message: text.Escape(message), Type: kind}})
	}
	for _, p := range r.problems {
		add(p.Place, "fault", p.String())
	}
	for _, n := range r.notes {
		if n.Warning {
			add(n.Place, "warning", n.Text)
		}
	}
	return cases
}

// printJUnit writes a test for each object, which fails if the object is refused, and an error for each fault or
// warning of the input.
func printJUnit(w io.Writer, r *report) error {
	suite := junitSuite{Name: "opgate check", Tests: len(r.judged), Cases: []junitCase{}}
	for i := range r.judged {
		j := &r.judged[i]
		c := junitCase{Name: j.titleIn(), Class: manifests.PathOf(j.File), File: manifests.PathOf(j.File), Line: j.Line}
		if j.Kustomization != "" {
			c.Class = text.Escape(j.Kustomization)
		}
		if j.Decision != verdict.Allow {
			suite.Failures++
			var reasons []string
			for _, why := range j.Reasons {
				reasons = append(reasons, text.Escape(why.Message))
			}
			c.Failure = &junitFailure{Message: reasons[0], Type: j.Decision.String(), Text: strings.Join(reasons, "\n")}
		}
		var output []string
		for _, f := range findings(j) {
			output = append(output, "warning: "+text.Escape(brief(f)))
		}
		c.Output = strings.Join(output, "\n")
		suite.Cases = append(suite.Cases, c)
	}
	errs := r.errors()
	suite.Cases, suite.Errors, suite.Tests = append(suite.Cases, errs...), len(errs), suite.Tests+len(errs)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(junitSuites{Suites: []junitSuite{suite}}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
