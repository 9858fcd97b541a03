package scripttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// command is a command line of kubectl, of which scripts use a part.
type command struct {
	*Player
	flags                                            *pflag.FlagSet
	namespace, output, patchType, patch, subresource string
	replicas                                         int
	all, now, overwrite                              bool
	out                                              strings.Builder
}

// kubectl does as an admin what a command line of kubectl does.
func (p *Player) kubectl(ctx context.Context, args []string) (stdout string, err error) {
	c := &command{Player: p, flags: pflag.NewFlagSet("kubectl", pflag.ContinueOnError)}
	c.flags.SetOutput(io.Discard)
	c.flags.StringVarP(&c.namespace, "namespace", "n", metav1.NamespaceDefault, "")
	c.flags.StringVarP(&c.output, "output", "o", "", "")
	c.flags.StringVar(&c.patchType, "type", "", "")
	c.flags.StringVarP(&c.patch, "patch", "p", "", "")
	c.flags.StringVar(&c.subresource, "subresource", "", "")
	c.flags.IntVar(&c.replicas, "replicas", 0, "")
	c.flags.BoolVar(&c.all, "all", false, "")
	c.flags.BoolVar(&c.now, "now", false, "")
	c.flags.BoolVar(&c.overwrite, "overwrite", false, "")
	if err := c.flags.Parse(args); err != nil {
		return "", err
	}
	args = c.flags.Args()
	if len(args) < 2 {
		return "", errors.New("scripts use VERB KIND [NAME]")
	}
	err = c.run(ctx, args[0], args[1], args[2:])
	return c.out.String(), err
}

func (c *command) run(ctx context.Context, verb, kind string, args []string) error {
	if verb == "get" {
		return c.get(ctx, kind, args)
	}
	if verb == "create" && kind == "namespace" && len(args) == 1 {
		return c.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: args[0]}})
	}
	gvk, err := c.kind(kind)
	if err != nil {
		return err
	}
	if verb == "delete" && c.all {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		return c.Admin.DeleteAllOf(ctx, u, client.InNamespace(c.namespace))
	}
	if len(args) == 0 {
		return fmt.Errorf("%s: a name is missing", verb)
	}
	u := c.object(gvk, args[0])
	switch verb {
	case "patch":
		patchTypes := map[string]types.PatchType{"merge": types.MergePatchType, "json": types.JSONPatchType}
		patch := client.RawPatch(patchTypes[c.patchType], []byte(c.patch))
		if c.subresource != "" {
			return c.Admin.SubResource(c.subresource).Patch(ctx, u, patch)
		}
		return c.Admin.Patch(ctx, u, patch)
	case "label":
		return c.change(ctx, u, u.GetLabels, u.SetLabels, args[1:])
	case "annotate":
		return c.change(ctx, u, u.GetAnnotations, u.SetAnnotations, args[1:])
	case "scale":
		replicas := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, c.replicas)
		return c.Admin.Patch(ctx, u, client.RawPatch(types.MergePatchType, replicas))
	case "delete":
		return c.delete(ctx, u)
	}
	return fmt.Errorf("scripts do not use kubectl %s", verb)
}

// kind returns the kind of a word such as subscription, subscriptions or subscriptions.operators.coreos.com.
func (c *command) kind(word string) (schema.GroupVersionKind, error) {
	versioned, resource := schema.ParseResourceArg(word)
	if versioned != nil {
		if gvk, err := c.Admin.RESTMapper().KindFor(*versioned); err == nil {
			return gvk, nil
		}
	}
	return c.Admin.RESTMapper().KindFor(resource.WithVersion(""))
}

func (c *command) object(gvk schema.GroupVersionKind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetName(name)
	if namespaced, err := c.Admin.IsObjectNamespaced(u); err != nil || namespaced {
		u.SetNamespace(c.namespace)
	}
	return u
}

// get prints one object, or those of some kinds.
func (c *command) get(ctx context.Context, words string, names []string) error {
	var printed any
	items := []any{}
	for _, word := range strings.Split(words, ",") {
		gvk, err := c.kind(word)
		if err != nil {
			return err
		}
		if len(names) == 1 {
			u := c.object(gvk, names[0])
			if err := c.Admin.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
				return err
			}
			printed = u.Object
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		if err := c.Admin.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			items = append(items, list.Items[i].Object)
			if c.output == "name" {
				kind := strings.TrimSuffix(schema.GroupKind{Group: gvk.Group, Kind: strings.ToLower(gvk.Kind)}.String(),
					".")
				fmt.Fprintf(&c.out, "%s/%s\n", kind, list.Items[i].GetName())
			}
		}
		printed = map[string]any{"items": items}
	}
	template, ok := strings.CutPrefix(c.output, "jsonpath=")
	if !ok {
		return nil
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return err
	}
	return path.Execute(&c.out, printed)
}

// change sets labels or annotations, given as KEY=VALUE, and removes those given as KEY-.
func (c *command) change(ctx context.Context, u *unstructured.Unstructured, get func() map[string]string,
	set func(map[string]string), changes []string) error {
	if err := c.Admin.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		return err
	}
	before, values := u.DeepCopy(), get()
	if values == nil {
		values = map[string]string{}
	}
	for _, change := range changes {
		key, value, given := strings.Cut(change, "=")
		if !given {
			delete(values, strings.TrimSuffix(key, "-"))
			continue
		}
		if old, found := values[key]; found && old != value && !c.overwrite {
			return fmt.Errorf("%s has a value, and --overwrite is not given", key)
		}
		values[key] = value
	}
	set(values)
	return c.Admin.Patch(ctx, u, client.MergeFrom(before))
}

// delete deletes an object and waits until it does not exist any more.
func (c *command) delete(ctx context.Context, u *unstructured.Unstructured) error {
	if err := c.Admin.Delete(ctx, u); err != nil {
		return err
	}
	return c.Poll(ctx, func(ctx context.Context) (bool, error) {
		err := c.Admin.Get(ctx, client.ObjectKeyFromObject(u), u)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}
