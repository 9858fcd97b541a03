package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
)

// formatWide is a table with all columns.
const formatWide = "wide"

// output is what the flags say of what is printed. Its formats of data are those of kubectl get, by kubectl's printers.
type output struct {
	data *genericclioptions.PrintFlags
	// own are the formats of the command.
	own       []string
	noHeaders bool
	// printer prints data; nil for a format of the command.
	printer printers.ResourcePrinter
}

// register adds the flags.
func (o *output) register(cmd *cobra.Command, own ...string) {
	o.data, o.own = genericclioptions.NewPrintFlags(""), own
	formats := slices.Concat(own, o.data.AllowedFormats())
	cmd.Flags().StringVarP(o.data.OutputFormat, "output", "o", "",
		"output format: "+strings.Join(formats, ", ")+" (default: text)")
	cli.Complete(cmd, "output", formats)
}

// format is one of the command's, or "".
func (o *output) format() string { return *o.data.OutputFormat }

// complete makes the printer of the format.
func (o *output) complete() (err error) {
	if o.data == nil || o.format() == "" || slices.Contains(o.own, o.format()) {
		return nil
	}
	if o.printer, err = o.data.ToPrinter(); genericclioptions.IsNoCompatiblePrinterError(err) {
		return fmt.Errorf("unknown output format %q: use %s, or leave it out", o.format(),
			cli.Alternatives(slices.Concat(o.own, o.data.AllowedFormats())))
	}
	return err
}

// table returns the options of a table.
func (o *output) table() printers.PrintOptions {
	return printers.PrintOptions{NoHeaders: o.noHeaders, Wide: o.format() == formatWide}
}

// items prints a List of values that are about objects of one kind.
func items[T any](
	o *output, out io.Writer, kind schema.GroupVersionKind, values []T, key func(T) types.NamespacedName,
) error {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for i := range values {
		item, err := o.object(kind, key(values[i]), values[i])
		if err != nil {
			return err
		}
		list.Items = append(list.Items, *item)
	}
	return o.print(out, list)
}

// item prints a value that is about an object.
func (o *output) item(out io.Writer, kind schema.GroupVersionKind, key types.NamespacedName, value any) error {
	item, err := o.object(kind, key, value)
	if err != nil {
		return err
	}
	return o.print(out, item)
}

func (o *output) print(out io.Writer, object runtime.Object) error {
	var printed bytes.Buffer
	if err := o.printer.PrintObj(object, &printed); err != nil {
		return unusable("print: %s", text.Escape(err.Error()))
	}
	data := printed.Bytes()
	if o.format() == "json" {
		data = text.JSON(data)
	}
	if _, err := out.Write(data); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// object returns a value as kubectl's printers take it, with kind and name of the object that it is about. Strings are
// escaped, except in JSON, which has escapes of its own: terminals obey some characters that no format has to escape.
func (o *output) object(
	kind schema.GroupVersionKind, key types.NamespacedName, value any,
) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode the output: %w", err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		return nil, fmt.Errorf("encode the output: %w", err)
	}
	u.SetGroupVersionKind(kind)
	if key.Name != "" {
		u.SetNamespace(key.Namespace)
		u.SetName(key.Name)
	}
	if o.format() != "json" {
		escaped(u.Object)
	}
	return u, nil
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

// table returns rows below a header. Columns from wide on are for the wide format alone.
func table(wide int, header []string, rows [][]string) *metav1.Table {
	t := &metav1.Table{}
	for i, name := range header {
		column := metav1.TableColumnDefinition{Name: name, Type: "string"}
		if i >= wide {
			column.Priority = 1
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions, column)
	}
	for _, row := range rows {
		cells := make([]any, len(row))
		for i, cell := range row {
			cells[i] = text.Escape(cell)
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
	}
	return t
}
