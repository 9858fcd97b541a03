package plugin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// The formats of data. Their field names are the same.
const (
	formatJSON = "json"
	formatYAML = "yaml"
	formatWide = "wide"
)

// printData prints a value as JSON, in which the characters that terminals obey are escaped, or as YAML, in which
// strings are escaped as in messages. The other formats print what their paths find.
func printData(out io.Writer, format string, value any) error {
	var err error
	switch format {
	case formatJSON:
		err = cli.JSON(out, value)
	case formatYAML:
		err = printYAML(out, value)
	default:
		return printPaths(out, format, value)
	}
	if err != nil {
		return fmt.Errorf("print %s: %w", format, err)
	}
	return nil
}

func printYAML(out io.Writer, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var generic any
	if err = json.Unmarshal(data, &generic); err != nil {
		return err
	}
	if data, err = yaml.Marshal(escaped(generic)); err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

// escaped escapes the strings of generic JSON.
func escaped(value any) any {
	switch value := value.(type) {
	case string:
		return text.Escape(value)
	case []any:
		for i, item := range value {
			value[i] = escaped(item)
		}
	case map[string]any:
		for name, item := range value {
			value[name] = escaped(item)
		}
	}
	return value
}

// The colors of a terminal.
const (
	bold   = "\x1b[1m"
	red    = "\x1b[1;31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	reset  = "\x1b[0m"
)

// cell is a text of a table, or of a line.
type cell struct{ text, color string }

// plain returns a cell without a color.
func plain(s string) cell { return cell{text: s} }

// decided returns a decision in its color.
func decided(word string, d verdict.Decision) cell {
	return cell{word, map[verdict.Decision]string{verdict.Allow: green, verdict.Hold: yellow, verdict.Deny: red}[d]}
}

// printer prints lines and tables. What it prints is escaped: names and messages may have been written by anyone.
type printer struct {
	*bufio.Writer
	colored bool
}

func newPrinter(out io.Writer) *printer { return &printer{bufio.NewWriter(out), colored(out)} }

// paint returns a cell for printing, at least as wide as given.
func (p *printer) paint(c cell, width int) string {
	s := text.Escape(c.text)
	padding := strings.Repeat(" ", max(0, width-len(s)))
	if p.colored && c.color != "" {
		s = c.color + s + reset
	}
	return s + padding
}

// line prints cells on a line, after an indentation.
func (p *printer) line(indent int, cells ...cell) {
	fmt.Fprint(p, strings.Repeat(" ", indent))
	for _, c := range cells {
		fmt.Fprint(p, p.paint(c, 0))
	}
	fmt.Fprintln(p)
}

// table prints rows below a header, in columns.
func (p *printer) table(header []string, rows [][]cell) {
	widths := make([]int, len(header))
	titles := make([]cell, len(header))
	for i, title := range header {
		titles[i] = cell{title, bold}
	}
	rows = append([][]cell{titles}, rows...)
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], len(text.Escape(c.text)))
		}
	}
	for _, row := range rows {
		for i, c := range row {
			if i == len(row)-1 {
				fmt.Fprint(p, p.paint(c, 0)) // nothing is printed behind it
				break
			}
			fmt.Fprint(p, p.paint(c, widths[i]+3))
		}
		fmt.Fprintln(p)
	}
}
