package apply

import (
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// maxLeft bounds the events on one change, and the names in the log.
const maxLeft = 20

// Left reports what the tables of a controller with one worker have no room for: in metric, events and log.
type Left struct {
	Metrics *Metrics
	Events  *events.Recorder
	Log     logr.Logger

	// parts are those of tables that have something left, by table and part.
	parts map[[2]string][]fair.Origin
}

const held = "what depends on it is held"

// consequences are what it means that a table has no room.
var consequences = map[string]string{"catalogs": held, "packages": held, "versions": held, "records": held,
	"operators": held, "backstop": "the webhooks alone hold the rest",
	"deletion": "not all that it names is protected from deletion", "escapes": "the rest is forgotten at the next restart"}

// Set replaces what a part of a table has no room for. A part has a limit of its own.
func (l *Left) Set(table, part string, left []fair.Origin) {
	key := [2]string{table, part}
	if slices.Equal(l.parts[key], left) {
		return
	}
	if l.parts == nil {
		l.parts = map[[2]string][]fair.Origin{}
	}
	if l.parts[key] = left; len(left) == 0 {
		delete(l.parts, key)
	}
	number, names, consequence := 0, []string(nil), consequences[table]
	for other, more := range l.parts {
		if other[0] == table {
			number += len(more)
		}
	}
	l.Metrics.Left(table, number)
	for i, o := range left {
		names = append(names, o.String())
		if o.UID == "" || i >= maxLeft {
			continue
		}
		regarding := verdict.PolicyRef{Kind: verdict.KindOperatorPolicy, Namespace: o.Namespace, Name: o.Name}.Reference()
		regarding.UID = types.UID(o.UID)
		l.Events.Record(events.Event{Regarding: *regarding, Reason: events.TableFull, Action: events.Update, Warning: true,
			Note: "the table of " + table + " has no room for all that this policy needs, and " + consequence +
				": have fewer or shorter policies in namespace " + text.Name(o.Namespace)})
	}
	if len(names) > 0 {
		l.Log.Info("table full", "table", table, "part", part, "left", text.Names(names, maxLeft), "consequence", consequence)
	}
}
