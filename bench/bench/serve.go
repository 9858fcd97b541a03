package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/opgate/opgate/certs"
)

// The floors, from the least that any webhook does to what a simple one does.
const (
	echo  = "TLS echo"
	empty = "empty webhook"
	typed = "typed decode"
)

// kind is what a server is: a floor, or Opgate with a number of policies.
type kind struct {
	floor    string
	policies int
}

func (k kind) String() string {
	if k.floor != "" {
		return k.floor
	}
	if k.policies == 1 {
		return "Opgate, 1 policy"
	}
	return fmt.Sprintf("Opgate, %d policies", k.policies)
}

// kindsOf are the servers that are measured.
func kindsOf(policies []int) []kind {
	all := []kind{{floor: echo}, {floor: empty}, {floor: typed}}
	for _, n := range policies {
		all = append(all, kind{policies: n})
	}
	return all
}

// ready is the first line that a server writes.
type ready struct {
	Address string
	CA      []byte
}

// usage is what a process has used since it started.
type usage struct {
	CPU                time.Duration
	Allocations, Bytes uint64
	// Resident is its memory now, in bytes; 0 where the kernel does not say it.
	Resident int64
}

// Serve is one of the servers, in a process of its own: the argument is a floor, or a number of policies. It writes
// ready to out, then usage for each line that it reads, and ends with its input.
func Serve(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("serve: %d arguments, want 1: a floor, or a number of policies", len(args))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	write := json.NewEncoder(out)
	listening := func(address net.Addr, ca []byte) error {
		if err := write.Encode(ready{address.String(), ca}); err != nil {
			return err
		}
		go func() {
			defer stop()
			for lines := bufio.NewScanner(in); lines.Scan(); {
				u, err := used()
				if err != nil || write.Encode(u) != nil {
					return
				}
			}
		}()
		return nil
	}
	if n, err := strconv.Atoi(args[0]); err == nil {
		return serveOpgate(ctx, n, listening)
	}
	return serveFloor(ctx, args[0], listening)
}

// serveFloor serves a floor at every path.
func serveFloor(ctx context.Context, floor string, listening func(net.Addr, []byte) error) error {
	ctrl.SetLogger(logr.Discard())
	handler, err := floorHandler(floor)
	if err != nil {
		return err
	}
	source, ca, err := certs.SelfSigned("127.0.0.1")
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := listening(listener.Addr(), ca); err != nil {
		return err
	}
	err = server.Serve(tls.NewListener(listener, &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: source.GetCertificate, NextProtos: []string{"http/1.1"}}))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func floorHandler(floor string) (http.Handler, error) {
	switch floor {
	case echo:
		return http.HandlerFunc(answerAlways), nil
	case empty:
		return registered(func(context.Context,
			ctrladmission.Request) ctrladmission.Response {
			return ctrladmission.Allowed("")
		}), nil
	case typed:
		scheme := k8sruntime.NewScheme()
		if err := operatorsv1alpha1.AddToScheme(scheme); err != nil {
			return nil, err
		}
		return registered(decodeBoth(ctrladmission.NewDecoder(scheme))), nil
	}
	return nil, fmt.Errorf("serve: %q is neither a number of policies nor one of %q, %q, %q", floor, echo, empty, typed)
}

// answerAlways reads a review and writes an answer that does not depend on it.
func answerAlways(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// the client has disconnected
	_, _ = io.WriteString(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",`+
		`"response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true}}`)
}

// registered is a webhook of controller-runtime, with its metrics, as Opgate's have them.
func registered(handle ctrladmission.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	webhook.NewServer(webhook.Options{WebhookMux: mux}).Register("/", &ctrladmission.Webhook{Handler: handle})
	return mux
}

// decodeBoth decodes the objects of a review into OLM's types and allows it.
func decodeBoth(decoder ctrladmission.Decoder) ctrladmission.HandlerFunc {
	return func(_ context.Context, r ctrladmission.Request) ctrladmission.Response {
		typeOf := func() k8sruntime.Object {
			if r.Kind.Kind == operatorsv1alpha1.SubscriptionKind {
				return &operatorsv1alpha1.Subscription{}
			}
			return &operatorsv1alpha1.InstallPlan{}
		}
		if err := decoder.DecodeRaw(r.Object, typeOf()); err != nil {
			return ctrladmission.Errored(http.StatusBadRequest, err)
		}
		if len(r.OldObject.Raw) > 0 {
			if err := decoder.DecodeRaw(r.OldObject, typeOf()); err != nil {
				return ctrladmission.Errored(http.StatusBadRequest, err)
			}
		}
		return ctrladmission.Allowed("")
	}
}

// used is what this process has used.
func used() (*usage, error) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	var times syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &times); err != nil {
		return nil, fmt.Errorf("getrusage: %w", err)
	}
	return &usage{CPU: time.Duration(times.Utime.Nano() + times.Stime.Nano()), Allocations: memory.Mallocs,
		Bytes:    memory.TotalAlloc,
		Resident: resident()}, nil
}

// resident is the resident memory of this process, 0 where the kernel does not say it.
func resident() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
