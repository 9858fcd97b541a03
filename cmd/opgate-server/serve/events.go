package serve

import (
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	toolsevents "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/internal/events"
)

// newEvents returns the recorder of events on objects that Opgate decides about. The manager has to run it.
func newEvents(config *rest.Config, now func() time.Time, log logr.Logger) (*events.Recorder, error) {
	client, err := eventsclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	instance, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find the name of this replica: %w", err)
	}
	return events.NewRecorder(events.Options{Sink: &toolsevents.EventSinkImpl{Interface: client}, Instance: instance,
		Registry: metrics.Registry, Log: log, Now: now}), nil
}
