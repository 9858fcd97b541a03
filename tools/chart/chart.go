// Package chart renders Opgate's Helm chart with the real helm, and makes the plain manifests from what comes out.
package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Release and namespace that plain manifests are made with.
const (
	release   = "opgate"
	namespace = "opgate-system"
)

// Document is one object of what was rendered.
type Document struct {
	metav1.TypeMeta
	Name string
	// Text is YAML, comments included.
	Text string
}

// OLM is who OLM is on most clusters: what plain manifests are made with.
const OLM = "system:serviceaccount:olm:olm-operator-serviceaccount"

// Render renders the chart in dir for a namespace. More arguments of "helm template" may follow.
func Render(ctx context.Context, helm, dir, namespace string, args ...string) ([]Document, error) {
	args = append([]string{"template", release, dir, "--namespace", namespace}, args...)
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, helm, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("helm template: %w: %s", errors.Join(err, ctx.Err()), strings.TrimSpace(stderr.String()))
	}
	return Split(stdout.String())
}

// sourceLine is what helm puts above each object.
var sourceLine = regexp.MustCompile(`(?m)^# Source: .*\n`)

// Split takes documents of YAML apart. Those without an object are left out.
func Split(text string) ([]Document, error) {
	var documents []Document
	for part := range strings.SplitSeq("\n"+text, "\n---\n") {
		var object struct {
			metav1.TypeMeta `json:",inline"`
			Metadata        struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(part), &object); err != nil {
			return nil, fmt.Errorf("read what was rendered: %w", err)
		}
		if object.Kind == "" {
			continue
		}
		documents = append(documents, Document{
			TypeMeta: object.TypeMeta, Name: object.Metadata.Name,
			Text: strings.TrimSpace(sourceLine.ReplaceAllString(part, "")) + "\n",
		})
	}
	return documents, nil
}
