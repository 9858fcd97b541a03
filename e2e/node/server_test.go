package node

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/opgate/opgate/e2e/internal/speed"
)

// Environment of the test binary where it runs in place of a pod.
const (
	webhookVariable = "E2E_WEBHOOK_ADDRESS"
	healthVariable  = "E2E_HEALTH_ADDRESS"
)

// drain is how long the server serves after SIGTERM, on a machine of usual speed: the time for others to observe that
// it ends.
const drain = time.Second

// testServer is the program that the pods of these tests run: this test binary.
func testServer() (Program, error) {
	path, err := os.Executable()
	return Program{Path: path, Env: func(c Container) []string {
		return []string{webhookVariable + "=" + c.Addresses["webhook"], healthVariable + "=" + c.Addresses["health"]}
	}}, err
}

// serve is a webhook that admits everything, with a warning that has its name and the content of file message in its
// directory. Requests to its health port make it ready, or not ready, or fail permanently.
func serve() error {
	name, dir := os.Getenv("POD_NAME"), os.Getenv("DIR")
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	fmt.Println("arguments", os.Args[1:])
	if os.Getenv(webhookVariable) == "" {
		return errors.New("there is no port webhook")
	}

	var unready, dead atomic.Bool
	health := http.NewServeMux()
	health.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if unready.Load() || ctx.Err() != nil {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	health.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		if dead.Load() {
			http.Error(w, "not alive", http.StatusInternalServerError)
		}
	})
	health.HandleFunc("POST /dead", func(http.ResponseWriter, *http.Request) { dead.Store(true) })
	health.HandleFunc("POST /unready", func(http.ResponseWriter, *http.Request) { unready.Store(true) })
	health.HandleFunc("POST /ready", func(http.ResponseWriter, *http.Request) { unready.Store(false) })

	webhook := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		message, err := os.ReadFile(filepath.Join(dir, "message"))
		if err != nil {
			message = []byte(err.Error())
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true,
			Warnings: []string{name + " says " + string(message)}}
		_ = json.NewEncoder(w).Encode(review)
	})
	servers := []*http.Server{
		{Addr: os.Getenv(healthVariable), Handler: health},
		{Addr: os.Getenv(webhookVariable), Handler: webhook,
			TLSConfig: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
				return &pair, err
			}}},
	}
	// A connection that is used once is never closed while the API server sends something on it.
	servers[1].SetKeepAlivesEnabled(false)
	ended := make(chan error, len(servers))
	go func() { ended <- servers[0].ListenAndServe() }()
	go func() { ended <- servers[1].ListenAndServeTLS("", "") }()
	fmt.Println("serving as", name)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	fmt.Println("ending as", name)
	time.Sleep(speed.Scale(drain))
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Shutdown(context.Background()))
	}
	return errors.Join(errs...)
}
