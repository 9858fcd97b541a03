package check

import (
	"io"
	"net/url"
	"strings"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
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

// printSARIF writes a result for each reason and each warning, and notifications of what is no verdict. The invocation is
// not successful if a problem concerns operators.
func printSARIF(w io.Writer, r *report) error {
	described, results, notifications := []sarif{}, []sarif{}, []sarif{}
	for _, rule := range rules.Rules() {
		summary := sarifText(rule.Summary)
		described = append(described, sarif{"id": rule.ID, "shortDescription": summary, "fullDescription": summary,
			"help": summary, "helpUri": help + strings.ReplaceAll(string(rule.ID), "/", "")})
	}
	for _, e := range r.entries() {
		shown := sarif{"level": e.level, "message": sarifText(text.Escape(e.message))}
		location := sarif{"physicalLocation": physical(e.File, e.Line)}
		if e.File != "" {
			shown["locations"] = []sarif{location}
		}
		if e.of == nil {
			notifications = append(notifications, shown)
			continue
		}
		title := e.of.titleIn()
		shown["message"] = sarifText(text.Escape(title + ": " + e.message))
		location["logicalLocations"] = []sarif{{"fullyQualifiedName": title, "kind": "object"}}
		if e.rule != "" {
			shown["ruleId"] = e.rule
		}
		results = append(results, shown)
	}
	run := sarif{"tool": sarif{"driver": sarif{"name": "opgate", "version": r.version, "informationUri": home,
		"rules": described}}, "results": results, "invocations": []sarif{{"executionSuccessful": r.code != exitUnusable,
		"exitCode": r.code, "toolExecutionNotifications": notifications}}}
	return cli.JSON(w, sarif{"$schema": sarifSchema, "version": "2.1.0", "runs": []sarif{run}})
}

func physical(file string, line int) sarif {
	return sarif{"artifactLocation": sarif{"uri": (&url.URL{Path: manifests.DisplayFile(file)}).String()},
		"region": sarif{"startLine": max(1, line)}}
}
