package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/opgate/opgate/e2e/assets/repo"
)

// Value is something that a user of the chart may set.
type Value struct {
	// Path is its keys, with dots in between.
	Path string
	// Default is JSON.
	Default string
	// Doc is the comment above it.
	Doc string
}

// schema is the part of values.schema.json that states what may be inside a value.
type schema struct {
	Properties map[string]schema `json:"properties"`
}

// Values reads the values of the chart, in their order, and checks that the schema knows the same ones. Maps in which
// the schema leaves the keys open, such as labels, are one value.
func Values(checkout repo.Checkout) ([]Value, error) {
	text, err := os.ReadFile(filepath.Join(checkout.Chart(), "values.yaml"))
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("values.yaml: %w", err)
	}
	if text, err = os.ReadFile(filepath.Join(checkout.Chart(), "values.schema.json")); err != nil {
		return nil, err
	}
	var root schema
	if err := json.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("values.schema.json: %w", err)
	}

	return valuesIn(document.Content[0], root, "")
}

func valuesIn(mapping *yaml.Node, known schema, prefix string) ([]Value, error) {
	var values []Value
	seen := map[string]bool{}
	for pair := range slices.Chunk(mapping.Content, 2) {
		key, value := pair[0], pair[1]
		path := prefix + key.Value
		inside, ok := known.Properties[key.Value]
		if !ok {
			return nil, fmt.Errorf("values.schema.json does not know %s", path)
		}
		seen[key.Value] = true
		if len(inside.Properties) > 0 {
			more, err := valuesIn(value, inside, path+".")
			if err != nil {
				return nil, err
			}
			values = append(values, more...)
			continue
		}
		doc := strings.Join(strings.Fields(strings.ReplaceAll("\n"+key.HeadComment, "\n#", " ")), " ")
		if doc == "" {
			return nil, fmt.Errorf("values.yaml: %s has no comment above it", path)
		}
		var content any
		if err := value.Decode(&content); err != nil {
			return nil, fmt.Errorf("values.yaml: %s: %w", path, err)
		}
		text, err := json.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("values.yaml: %s: %w", path, err)
		}
		values = append(values, Value{Path: path, Default: string(text), Doc: doc})
	}
	for key := range known.Properties {
		if !seen[key] {
			return nil, fmt.Errorf("values.yaml has no %s%s, which values.schema.json knows", prefix, key)
		}
	}
	return values, nil
}

const readmeHead = `<!-- Made from values.yaml by "make generate": change the comments there. -->
# Chart opgate

Installs Opgate: the definitions of OperatorPolicy, Constraint, Policy and PolicySet, the webhook configurations, their pods,
permissions and certificates.
[docs/install.md](../../../docs/install.md) says how to install, upgrade and remove it, and with which versions of Helm.

` + "```shell" + `
helm install opgate manifests/chart/opgate --namespace opgate-system --create-namespace
` + "```" + `

One cluster holds one release: webhook configurations, roles and the definitions have fixed names. Values that do not exist,
and wrong ones, are refused.

| Value | Default | What it is |
|---|---|---|
`

// readme is the documentation of the chart.
func readme(checkout repo.Checkout) (string, error) {
	values, err := Values(checkout)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(readmeHead)
	cell := strings.NewReplacer("|", `\|`)
	for _, v := range values {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", v.Path, cell.Replace(v.Default), cell.Replace(v.Doc))
	}
	return b.String(), nil
}
