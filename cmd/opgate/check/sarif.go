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

// SARIF 2.1.0, as far as code scanning reads it.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
		HelpURI          string    `json:"helpUri"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId,omitempty"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
)

const (
	sarifSchema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
	home        = "https://github.com/opgate/opgate"
	// help is where rules.md documents a rule, by its ID without the slash.
	help = home + "/blob/main/docs/rules.md#"
)

// printSARIF writes a result for each reason and each warning.
func printSARIF(w io.Writer, r *report) error {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "opgate", InformationURI: home, Rules: []sarifRule{}}}, Results: []sarifResult{}}
	for _, rule := range rules.Rules() {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{ID: string(rule.ID), ShortDescription: sarifText{rule.Summary},
			HelpURI: help + anchor(rule.ID)})
	}
	for i := range r.judged {
		j := &r.judged[i]
		add := func(level string, rule rules.RuleID, field, message string) {
			run.Results = append(run.Results, sarifResult{RuleID: string(rule), Level: level,
				Message: sarifText{text.Escape(j.title() + ": " + message)}, Locations: []sarifLocation{{
					Physical: sarifPhysical{sarifArtifact{(&url.URL{Path: manifests.DisplayFile(j.File)}).String()}, sarifRegion{max(1, j.LineOf(field))}},
					Logical:  []sarifLogical{{j.title(), "object"}},
				}}})
		}
		for _, why := range j.Reasons {
			add("error", why.Rule, why.Field, why.Message)
		}
		for _, f := range findings(j) {
			add("warning", f.Rule, f.Field, brief(f))
		}
	}
	return cli.JSON(w, sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{run}})
}

// anchor is the fragment of a rule's heading, as forges make them.
func anchor(id rules.RuleID) string { return strings.ReplaceAll(string(id), "/", "") }
