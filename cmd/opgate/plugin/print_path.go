package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"github.com/opgate/opgate/internal/text"
)

// The formats that are followed by paths into the data of formatJSON, as those of kubectl get.
const (
	formatJSONPath      = "jsonpath="
	formatCustomColumns = "custom-columns="
)

// noValue is what custom columns have where the data has nothing, as in kubectl get.
const noValue = "<none>"

// isData reports whether a format is one of data, which prints everything there is.
func isData(format string) bool {
	return format == formatJSON || format == formatYAML || strings.HasPrefix(format, formatJSONPath) ||
		strings.HasPrefix(format, formatCustomColumns)
}

// checkPaths returns an error for a format whose paths cannot be read.
func checkPaths(format string) error {
	if template, ok := strings.CutPrefix(format, formatJSONPath); ok {
		_, err := parsePath(template)
		return err
	}
	if columns, ok := strings.CutPrefix(format, formatCustomColumns); ok {
		_, err := parseColumns(columns)
		return err
	}
	return nil
}

// parsePath parses a template as kubectl does: a key that is not there is nothing.
func parsePath(template string) (*jsonpath.JSONPath, error) {
	if template == "" {
		return nil, errors.New("the template is empty: write one such as jsonpath='{[*].name}'")
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, fmt.Errorf("template %s: %w", text.Quote(template), err)
	}
	return path, nil
}

// column is one of custom-columns.
type column struct {
	header string
	path   *jsonpath.JSONPath
}

// parseColumns parses HEADER:PATH,...; a path needs neither braces nor the first dot.
func parseColumns(spec string) ([]column, error) {
	var columns []column
	for part := range strings.SplitSeq(spec, ",") {
		header, path, ok := strings.Cut(part, ":")
		if !ok || header == "" || path == "" {
			return nil, fmt.Errorf("column %s: write HEADER:PATH, as in custom-columns=PLAN:.name,VERDICT:.decision",
				text.Quote(part))
		}
		path = strings.TrimSuffix(strings.TrimPrefix(path, "{"), "}")
		if !strings.HasPrefix(path, "[") {
			path = "." + strings.TrimPrefix(path, ".")
		}
		parsed, err := parsePath("{" + path + "}")
		if err != nil {
			return nil, err
		}
		columns = append(columns, column{header, parsed})
	}
	return columns, nil
}

// printPaths prints what paths find in a value, of which strings are escaped.
func printPaths(out io.Writer, format string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	var generic any
	if err := json.Unmarshal(data, &generic); err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	generic = escaped(generic)
	if template, ok := strings.CutPrefix(format, formatJSONPath); ok {
		path, err := parsePath(template)
		if err == nil {
			err = path.Execute(out, generic)
		}
		if err != nil {
			return fmt.Errorf("print %s: %w", text.Quote(template), err)
		}
		return nil
	}
	columns, err := parseColumns(strings.TrimPrefix(format, formatCustomColumns))
	if err != nil {
		return err
	}
	return printColumns(out, columns, generic)
}

// printColumns prints a row for each item of a list, or one for an object.
func printColumns(out io.Writer, columns []column, value any) error {
	items, ok := value.([]any)
	if !ok {
		items = []any{value}
	}
	headers, rows := make([]string, len(columns)), make([][]cell, len(items))
	for i, c := range columns {
		headers[i] = c.header
	}
	for i, item := range items {
		for _, c := range columns {
			var found bytes.Buffer
			if err := c.path.Execute(&found, item); err != nil {
				return fmt.Errorf("column %s: %w", text.Quote(c.header), err)
			}
			shown := found.String()
			if shown == "" {
				shown = noValue
			}
			rows[i] = append(rows[i], plain(shown))
		}
	}
	p := newPrinter(out)
	p.table(headers, rows)
	return p.Flush()
}
