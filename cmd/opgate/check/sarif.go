package check

import (
	"io"
	"net/url"
	"strings"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	sarifSchema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
	home        = "https://github.com/opgate/opgate"
	// help is where rules.md documents a rule, by its ID without the slash.
	help = home + "/blob/main/docs/rules.md#"
)

// sarif is an object of SARIF 2.1.0, of which there is as much as code scanning reads.
type sarif map[string]any

func sarifText(s string) sarif { return sarif{"text": s} }

// printSARIF writes a result for each reason and each warning.
func printSARIF(w io.Writer, r *report) error {
	described, results := []sarif{}, []sarif{}
	for _, rule := range rules.Rules() {
		summary := sarifText(rule.Summary)
		described = append(described, sarif{"id": rule.ID, "shortDescription": summary, "fullDescription": summary,
			"help": summary, "helpUri": help + strings.ReplaceAll(string(rule.ID), "/", "")})
	}
	for i := range r.judged {
		j := &r.judged[i]
		add := func(level string, rule verdict.RuleID, field, message string) sarif {
			result := sarif{"level": level, "message": sarifText(text.Escape(j.titleIn() + ": " + message)),
				"locations": []sarif{{"physicalLocation": physical(j.File, j.LineOf(field)),
					"logicalLocations": []sarif{{"fullyQualifiedName": j.titleIn(), "kind": "object"}}}}}
			if rule != "" {
				result["ruleId"] = rule
			}
			results = append(results, result)
			return result
		}
		for _, why := range j.reasons() {
			add("error", why.Rule, why.Field, why.Message)
		}
		for _, f := range findings(j) {
			add(r.warningLevel(), f.Rule, f.Field, brief(f))
		}
		for _, s := range j.aside {
			add("warning", s.Rule, s.Field, brief(s.Warning))["suppressions"] = []sarif{{"kind": "inSource",
				"status": "accepted", "justification": text.Escape(s.by.reason),
				"location": sarif{"physicalLocation": physical(s.by.at.File, s.by.at.Line)}}}
		}
	}
	run := sarif{"tool": sarif{"driver": sarif{"name": "opgate", "version": r.version, "informationUri": home,
		"rules": described}}, "invocations": []sarif{r.invocation()}, "results": results}
	return cli.JSON(w, sarif{"$schema": sarifSchema, "version": "2.1.0", "runs": []sarif{run}})
}

// invocation has what is no verdict: what cannot be used, and what is said of the input. It is not successful if a
// problem concerns operators.
func (r *report) invocation() sarif {
	notifications := []sarif{}
	add := func(level string, at manifests.Place, message string) {
		n := sarif{"level": level, "message": sarifText(text.Escape(message))}
		if at.File != "" {
			n["locations"] = []sarif{{"physicalLocation": physical(at.File, at.Line)}}
		}
		notifications = append(notifications, n)
	}
	for i := range r.problems {
		add(levelOf(&r.problems[i]), r.problems[i].Place, r.problems[i].String())
	}
	for _, n := range r.notes {
		level := "note"
		if n.Warning {
			level = "warning"
		}
		add(level, n.Place, n.Text)
	}
	return sarif{"executionSuccessful": r.code != exitUnusable, "exitCode": r.code,
		"toolExecutionNotifications": notifications}
}

func physical(file string, line int) sarif {
	return sarif{"artifactLocation": sarif{"uri": (&url.URL{Path: manifests.DisplayFile(file)}).String()},
		"region": sarif{"startLine": max(1, line)}}
}
