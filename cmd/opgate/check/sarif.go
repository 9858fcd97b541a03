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

// SARIF 2.1.0, as far as code scanning reads it.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		Invocations []sarifInvocation `json:"invocations"`
		Results     []sarifResult     `json:"results"`
	}
	sarifInvocation struct {
		// Successful is unset if a problem concerns operators.
		Successful    bool                `json:"executionSuccessful"`
		ExitCode      int                 `json:"exitCode"`
		Notifications []sarifNotification `json:"toolExecutionNotifications"`
	}
	sarifNotification struct {
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations,omitempty"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
		FullDescription  sarifText `json:"fullDescription"`
		Help             sarifText `json:"help"`
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
		// Suppressions are what sets it aside; nil for what is not, empty never.
		Suppressions []sarifSuppression `json:"suppressions,omitempty"`
	}
	sarifSuppression struct {
		Kind          string        `json:"kind"`
		Status        string        `json:"status"`
		Justification string        `json:"justification"`
		Location      sarifLocation `json:"location"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
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
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "opgate", Version: r.version, InformationURI: home,
		Rules: []sarifRule{}}},
		Invocations: []sarifInvocation{r.invocation()}, Results: []sarifResult{}}
	for _, rule := range rules.Rules() {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules,
			sarifRule{ID: string(rule.ID), ShortDescription: sarifText{rule.Summary},
				FullDescription: sarifText{rule.Summary},
				Help: sarifText{rule.Summary}, HelpURI: help + anchor(rule.ID)})
	}
	for i := range r.judged {
		j := &r.judged[i]
		add := func(level string, rule verdict.RuleID, field, message string, aside ...sarifSuppression) {
			run.Results = append(run.Results, sarifResult{RuleID: string(rule), Level: level,
				Message: sarifText{text.Escape(j.titleIn() + ": " + message)}, Locations: []sarifLocation{{
					Physical: physical(j.File, j.LineOf(field)),
					Logical:  []sarifLogical{{j.titleIn(), "object"}},
				}}, Suppressions: aside})
		}
		for _, why := range j.reasons() {
			add("error", why.Rule, why.Field, why.Message)
		}
		for _, f := range findings(j) {
			add(r.warningLevel(), f.Rule, f.Field, brief(f))
		}
		for _, s := range j.aside {
			add("warning", s.Rule, s.Field, brief(s.Warning), sarifSuppression{"inSource", "accepted",
				text.Escape(s.by.reason), sarifLocation{Physical: physical(s.by.at.File, s.by.at.Line)}})
		}
	}
	return cli.JSON(w, sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{run}})
}

// invocation has what is no verdict: what cannot be used, and what is said of the input.
func (r *report) invocation() sarifInvocation {
	found := sarifInvocation{Successful: r.code != exitUnusable, ExitCode: r.code, Notifications: []sarifNotification{}}
	add := func(level string, at manifests.Place, message string) {
		n := sarifNotification{Level: level, Message: sarifText{text.Escape(message)}}
		if at.File != "" {
			n.Locations = []sarifLocation{{Physical: physical(at.File, at.Line)}}
		}
		found.Notifications = append(found.Notifications, n)
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
	return found
}

func physical(file string, line int) sarifPhysical {
	return sarifPhysical{sarifArtifact{(&url.URL{Path: manifests.DisplayFile(file)}).String()},
		sarifRegion{max(1, line)}}
}

// anchor is the fragment of a rule's heading, as forges make them.
func anchor(id verdict.RuleID) string { return strings.ReplaceAll(string(id), "/", "") }
