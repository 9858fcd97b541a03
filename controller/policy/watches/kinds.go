package watches

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// Lookup returns the definition of a kind, nil if the kind is not served.
func (w *Watches) Lookup(group, kind string) *snapshot.Definition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kinds[schema.GroupKind{Group: group, Kind: kind}]
}

// Templates returns the kinds that templates may contain.
func (w *Watches) Templates() []*snapshot.Definition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(w.kinds)),
		func(d *snapshot.Definition) bool { return !d.Template })
}

// definition returns the definition in an object of the store; nil for none. The definitions of Gatekeeper's own kinds
// do not declare whether templates may contain them.
func (o *Options) definition(object *snapshot.Object) *snapshot.Definition {
	if object == nil || object.Definition() == nil {
		return nil
	}
	d := *object.Definition()
	if (dependency.Ref{Group: d.Group, Kind: d.Kind}).Gatekeeper() {
		d.Template = o.Gatekeeper
	}
	return &d
}

// kinds are the definitions of the kinds that are served. They must not be modified.
type kinds map[schema.GroupKind]*snapshot.Definition

// replace applies a definition that was added (old is nil), changed or deleted (now is nil), and returns the kinds that
// differ from before.
func (k kinds) replace(old, now *snapshot.Definition) (changed []schema.GroupKind) {
	if now != nil && !now.Established {
		now = nil
	}
	// After a watch was interrupted, the deletion of a definition may arrive after the one that replaced it.
	if old != nil && (now == nil || now.GroupKind() != old.GroupKind()) {
		if served := k[old.GroupKind()]; served != nil && served.Metadata.Name == old.Metadata.Name {
			delete(k, old.GroupKind())
			changed = append(changed, old.GroupKind())
		}
	}
	if now == nil {
		return changed
	}
	before := k[now.GroupKind()]
	if k[now.GroupKind()] = now; !sameKind(before, now) {
		changed = append(changed, now.GroupKind())
	}
	return changed
}

// sameKind reports whether two definitions define the same kind, whatever their annotations.
func sameKind(before, now *snapshot.Definition) bool {
	if before == nil {
		return false
	}
	same := *before
	same.Annotations = now.Annotations
	return reflect.DeepEqual(&same, now)
}

// serves reports whether a version is served; "" is any.
func serves(d *snapshot.Definition, version string) bool {
	return version == "" || slices.Contains(d.Versions, version)
}

// possible reports whether an object could have that namespace and name. The API server would read others as another
// request.
func possible(d *snapshot.Definition, ref dependency.Ref) bool {
	valid := func(s string) bool { return s != "" && len(rest.IsValidPathSegmentName(s)) == 0 }
	return valid(ref.Name) && (!d.Namespaced || valid(ref.Namespace))
}
