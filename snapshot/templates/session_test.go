package templates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/lookup"
	"github.com/opgate/opgate/snapshot"
)

// api is the part of an API server that lookups need: core/v1 with ConfigMaps, which may be forbidden, Secrets and
// Nodes.
type api struct {
	*httptest.Server
	mu         sync.Mutex
	configMaps map[string]string // the value of key v, by name
	forbidden  bool
	hanging    chan struct{} // if set, requests send a token here and are never answered
	events     chan string
	requests   []string // path and user of those for objects
}

func startAPI(t *testing.T) *api {
	a := &api{configMaps: map[string]string{}, events: make(chan string)}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func object(kind, name, value string) string { return objectIn("a", kind, name, value) }

func objectIn(namespace, kind, name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":%q,"namespace":%q,"resourceVersion":"7"},"data":{"v":%q}}`, kind, name, namespace, value)
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	forbidden, hanging := a.forbidden, a.hanging
	name := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	value, there := a.configMaps[name]
	if r.URL.Path != "/api/v1" {
		a.requests = append(a.requests, r.URL.Path+" "+r.Header.Get("Impersonate-User"))
	}
	a.mu.Unlock()
	if hanging != nil {
		hanging <- struct{}{}
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, text string) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(text))
	}
	switch {
	case r.URL.Path == "/api/v1":
		answer(200, `{"kind":"APIResourceList","groupVersion":"v1","resources":[
			{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":["list","watch"]},
			{"name":"secrets","kind":"Secret","namespaced":true,"verbs":["list","watch"]},
			{"name":"nodes","kind":"Node","namespaced":false,"verbs":["list","watch"]},
			{"name":"bindings","kind":"Binding","namespaced":true,"verbs":["create"]}]}`)
	case forbidden && strings.HasSuffix(r.URL.Path, "/configmaps"):
		answer(403, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"configmaps is forbidden"}`)
	case r.URL.Query().Has("watch"):
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case event := <-a.events:
				_, _ = w.Write([]byte(event))
				w.(http.Flusher).Flush()
			}
		}
	case r.URL.Path == "/api/v1/configmaps":
		answer(200, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`+
			object("ConfigMap", "cm", "etcd.v1")+`,`+objectIn("opgate-system", "ConfigMap", "own", "hush")+`]}`)
	case strings.HasSuffix(r.URL.Path, "/nodes"):
		answer(200, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","resourceVersion":"7"}}]}`)
	case strings.HasSuffix(r.URL.Path, "/configmaps"):
		items := ""
		if there {
			items = object("ConfigMap", name, value)
		}
		answer(200, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`+items+`]}`)
	case strings.HasSuffix(r.URL.Path, "/secrets"):
		answer(200, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`+
			object("Secret", name, "aHVzaA==")+`]}`)
	default:
		answer(404, "404 page not found")
	}
}

// session opens a session with the API; changed receives a token for each change.
func (a *api) session(t *testing.T) (s *session, changed chan struct{}) {
	t.Helper()
	silenceLibrary()
	changed = make(chan struct{}, 100)
	opened, err := openSession(t.Context(), &rest.Config{Host: a.URL}, http.DefaultTransport, "opgate-system",
		types.NamespacedName{Namespace: "policies", Name: "etcd"}, func() { changed <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.close)
	return opened.(*session), changed
}

// resolved returns the result, as JSON, of the only part of a policy with these versions, or the problem.
func resolved(t *testing.T, s *session, entries ...string) (value, problem string, retry bool) {
	t.Helper()
	op := policy(versions(entries...))
	answers, retry := s.resolve(t.Context(), scope{namespace: op.Namespace, verified: true, lookups: rules.Lookups(op)},
		templated(op))
	if len(answers) != 1 {
		t.Fatalf("%d answers", len(answers))
	}
	if answers[0].problem != "" {
		return "", answers[0].problem, retry
	}
	raw, err := json.Marshal(answers[0].value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw), "", retry
}

func TestTemplates(t *testing.T) {
	const looked = `template: tmpl:1:5: executing "tmpl" at <`
	tests := map[string]struct {
		entry   string
		want    string
		problem string // its prefix
		retry   bool
	}{
		"text":        {"a{{ \"b\" }}c", `["abc"]`, "", false},
		"a ConfigMap": {`{{ fromConfigMap "a" "cm" "v" }}`, `["etcd.v1"]`, "", false},
		"lookup":      {`{{ (lookup "v1" "ConfigMap" "a" "cm").data.v }}`, `["etcd.v1"]`, "", false},
		"sprig": {`{{ fromConfigMap "a" "cm" "v" | upper | replace "." "-" }}`, `["ETCD-V1"]`, "",
			false},
		"if, with and range": {`{{ if true }}{{ with "x" }}{{ . }}{{ end }}{{ else }}y{{ end }}{{- range $i, $v := list "a" "b" }} {{ $i }}{{ $v }}{{ else }}none{{ end }}`, `["x 0a 1b"]`, "", false},
		"variables":          {`{{ $v := "a" }}{{ $v = print $v "b" }}{{ $v }}`, `["ab"]`, "", false},
		"else if":            {`{{ if false }}a{{ else if true }}b{{ end }}`, `["b"]`, "", false},
		"break": {`{{ range until 5 }}{{ if eq . 2 }}{{ break }}{{ end }}{{ . }}{{ end }}`, `["01"]`,
			"", false},
		"until and repeat": {`{{ until 3 }} {{ until -2 }} {{ repeat 2 "x" }}`, `["[0 1 2] [0 -1] xx"]`, "", false},

		"a ConfigMap that is not there": {`{{ fromConfigMap "a" "nope" "v" }}`, "",
			looked + `fromConfigMap "a" "nope" "v">: error calling fromConfigMap: failed getting the ConfigMap nope from a: configmaps "nope" not found`, false},
		"a value that is not there": {`{{ (lookup "v1" "ConfigMap" "a" "cm").data.nope }}`, "",
			"a value that it asks for is not there", false},
		"with a default": {`{{ (lookup "v1" "ConfigMap" "a" "cm").data.nope | default "x" }}`, `["x"]`,
			"", false},
		"an API that is not served": {`{{ fromClusterClaim "x" }}`, "",
			looked + `fromClusterClaim "x">: error calling fromClusterClaim: one or more API resources are not installed`, true},
		"a kind that cannot be watched": {`{{ lookup "v1" "Binding" "a" "x" }}`, "",
			looked + `lookup "v1" "Binding" "a" "x">: error calling lookup: /v1, Kind=Binding cannot be watched`,
			false},
		"text that does not parse": {`{{ if }}`, "", "template: policy:1: missing value for if", false},
		"an unknown function": {`{{ launch "missiles" }}`, "",
			`template: tmpl:1: function "launch" not defined`, false},
		"the environment": {`{{ env "HOME" }}`, "", looked +
			`env "HOME">: error calling env: use of denylisted template function`, false},
		"random values": {`{{ randAlpha 5 }}`, "", looked +
			`randAlpha 5>: error calling randAlpha: use of denylisted template function`, false},
		"define": {`{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}`, "",
			"define and block are not supported", false},
		"template": {`{{ template "policy" }}`, "", "template is not supported", false},
		"a loop without end": {`{{ range 1000000000 }}{{ range 1000000000 }}{{ end }}{{ end }}`, "",
			"its loops and branches run more than 10000 times", false},
		"a list without end": {`{{ range until 1000000000 }}{{ end }}`, "",
			"a list of more than 10000 numbers", false},
		"a function that pads": {`{{ indent 1000000000 "x" }}`, "", looked +
			`indent 1000000000 "x">: error calling indent: use of denylisted template function`, false},
		"a string without end": {`{{ repeat 1000000000 "x" }}`, "", "cannot repeat 1 bytes that many times",
			false},
		"output without end": {`{{ $x := repeat 1000 "x" }}{{ range 10000 }}{{ $x }}{{ end }}`, "",
			"it resolves to more than 1 MiB", false},
		"output of lists": {`{{ $x := list (repeat 8000 "x") }}{{ range 200 }}{{ $x }}{{ end }}`, "",
			"it resolves to more than 1 MiB", false},
		"text without end": {strings.Repeat("{{ 1 }}", maxText/7+1), "", "it is longer than 256 KiB",
			false},
		"nesting without end": {strings.Repeat("{{ if true }}", 5000) + strings.Repeat("{{ end }}", 5000),
			`[""]`, "", false},
		"a panic": {`{{ index (list) 5 }}`, "", looked + `index (list) 5>: error calling index`,
			false},
		// refused by fit
		"YAML of its own": {`{{ fromConfigMap "a" "evil" "v" }}`, `["x","evil"]`, "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := startAPI(t)
			a.configMaps["cm"], a.configMaps["evil"] = "etcd.v1", "x'\n- 'evil"
			s, _ := a.session(t)
			value, problem, retry := resolved(t, s, test.entry)
			if value != test.want || !strings.HasPrefix(problem, test.problem) ||
				(problem != "") != (test.problem != "") {
				t.Errorf("resolved to %s, problem %q; want %s, problem %q", value, problem, test.want, test.problem)
			}
			if retry != test.retry {
				t.Errorf("retry = %v, want %v", retry, test.retry)
			}
			if len(problem) > maxProblem+10 {
				t.Errorf("a problem of %d bytes", len(problem))
			}
			if strings.Contains(problem, "opgate") {
				t.Errorf("problem %q names what was put into the template", problem)
			}
		})
	}
}

func TestLookedUpObjectsAreWatched(t *testing.T) {
	a := startAPI(t)
	a.configMaps["cm"] = "etcd.v1"
	s, changed := a.session(t)
	if value, problem, _ := resolved(t, s, `{{ fromConfigMap "a" "cm" "v" }}`); value != `["etcd.v1"]` {
		t.Fatalf("resolved to %s, problem %q", value, problem)
	}
	a.events <- `{"type":"MODIFIED","object":` + strings.Replace(object("ConfigMap", "cm", "etcd.v2"), `"7"`, `"8"`,
		1) + "}\n"
	<-changed
	if value, problem, _ := resolved(t, s, `{{ fromConfigMap "a" "cm" "v" }}`); value != `["etcd.v2"]` {
		t.Errorf("resolved to %s, problem %q", value, problem)
	}
	if s.lost() {
		t.Error("the session counts as lost")
	}
}

func TestForbiddenLookups(t *testing.T) {
	a := startAPI(t)
	a.forbidden, a.configMaps["cm"] = true, "etcd.v1"
	s, _ := a.session(t)
	const text = `{{ fromConfigMap "a" "cm" "v" }}`
	_, problem, retry := resolved(t, s, text)
	if !strings.Contains(problem, "configmaps is forbidden") || !retry {
		t.Errorf("problem %q, retry %v", problem, retry)
	}
	if s.lost() {
		t.Error("a right that is missing ends the session, and with it all that is watched")
	}
	a.mu.Lock()
	a.forbidden = false
	a.mu.Unlock()
	if value, problem, _ := resolved(t, s, text); value != `["etcd.v1"]` {
		t.Errorf("resolved to %s, problem %q", value, problem)
	}
}

// TestI1TemplatesReadNothingOfTheGate resolves templates that read what only Opgate may read, against an API that would
// answer (threat O43).
func TestI1TemplatesReadNothingOfTheGate(t *testing.T) {
	for _, tc := range []struct {
		name, entry string
		want        string
		problem     string
	}{
		{name: "a ConfigMap elsewhere (control)", entry: `{{ fromConfigMap "a" "cm" "v" }}`, want: `["etcd.v1"]`},
		{name: "a Node (control)", entry: `{{ (lookup "v1" "Node" "" "n1").metadata.name }}`, want: `["n1"]`},
		{name: "attack: the key of marks", entry: `{{ fromSecret "opgate-system" "opgate-marks" "key" }}`,
			problem: "cannot look up Secrets"},
		{name: "attack: all data of a Secret", entry: `{{ copySecretData "opgate-system" "opgate-ca" }}`,
			problem: "cannot look up Secrets"},
		{name: "attack: a Secret by lookup",
			entry:   `{{ (lookup "v1" "Secret" "opgate-system" "opgate-marks").data.v }}`,
			problem: "cannot look up Secrets"},
		{name: "attack: a Secret of another namespace", entry: `{{ (lookup "v1" "Secret" "a" "s").data.v }}`,
			problem: "cannot look up Secrets"},
		{name: "attack: a list of Secrets", entry: `{{ lookup "v1" "Secret" "" "" }}`,
			problem: "cannot look up Secrets"},
		{name: "attack: a ConfigMap of Opgate", entry: `{{ fromConfigMap "opgate-system" "cm" "v" }}`,
			problem: "in namespace opgate-system, which is Opgate's own"},
		{name: "attack: a list of its ConfigMaps", entry: `{{ lookup "v1" "ConfigMap" "opgate-system" "" }}`,
			problem: "which is Opgate's own"},
		{name: "attack: a list of all ConfigMaps",
			entry: `{{ range (lookup "v1" "ConfigMap" "" "").items }}{{ .data.v }}{{ end }}`, want: `["etcd.v1"]`},
		{name: "attack: a name in all namespaces", entry: `{{ (lookup "v1" "ConfigMap" "" "own").data.v }}`,
			problem: "ConfigMap has namespaces"},
		{name: "attack: a path for a namespace", entry: `{{ fromConfigMap "../namespaces/opgate-system" "cm" "v" }}`,
			problem: "is not the name of one"},
		{name: "attack: a namespace in upper case", entry: `{{ fromConfigMap "Opgate-System" "cm" "v" }}`,
			problem: "is not the name of one"},
		{name: "attack: a namespace for a kind without", entry: `{{ (lookup "v1" "Node" "a" "n1").metadata.name }}`,
			problem: "Node has no namespace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := startAPI(t)
			a.configMaps["cm"] = "etcd.v1"
			s, _ := a.session(t)
			value, problem, _ := resolved(t, s, tc.entry)
			if value != tc.want || !strings.Contains(problem, tc.problem) || (problem != "") != (tc.problem != "") {
				t.Errorf("resolved to %s, problem %q; want %s, problem %q", value, problem, tc.want, tc.problem)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, request := range a.requests {
				if strings.Contains(request, "/secrets") || strings.Contains(request, "opgate-system") {
					t.Errorf("request %s", request)
				}
			}
		})
	}
}

// TestI1LookupsHaveTheirOwnAccount checks that lookups are not made as Opgate itself (threat O43).
func TestI1LookupsHaveTheirOwnAccount(t *testing.T) {
	for _, tc := range []struct{ name, namespace, want string }{
		{name: "the server", namespace: "opgate-system", want: "system:serviceaccount:opgate-system:opgate-lookups"},
		{name: "a command of a user"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := startAPI(t)
			a.configMaps["cm"] = "etcd.v1"
			key := []byte("key of marks")
			published := make(chan snapshot.Completion, 1)
			resolver, err := New(Options{Config: &rest.Config{Host: a.URL}, Namespace: tc.namespace,
				Key:     func() []byte { return key },
				Publish: func(_ types.NamespacedName, c snapshot.Completion) { published <- c }})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = resolver.Start(ctx) })
			defer running.Wait()
			defer cancel()
			op := policy(versions(`{{ fromConfigMap "a" "cm" "v" }}`))
			op.Annotations = map[string]string{metakey.Verified: rules.SignAuthor(key, op)}
			resolver.Policy(op)
			if c := <-published; len(c.Problems) > 0 || c.Policy.Spec.Versions[0] != "etcd.v1" {
				t.Errorf("resolved to %q, problems %q", c.Policy.Spec.Versions, c.Problems)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, request := range a.requests {
				if request != "/api/v1/namespaces/a/configmaps "+tc.want {
					t.Errorf("request %q", request)
				}
			}
			if len(a.requests) == 0 {
				t.Error("no request")
			}
		})
	}
}

// TestI1LookupsNeedAVerifiedAuthor resolves policies whose author was not verified, and templates that look up what
// their text does not show (threat O47).
func TestI1LookupsNeedAVerifiedAuthor(t *testing.T) {
	key := []byte("key of marks")
	const unverified, notFound = rules.UnverifiedLookupText, "it looks up what Opgate did not find in its text"
	signed := func(op *policyv1beta2.OperatorPolicy) string { return rules.SignAuthor(key, op) }
	for _, tc := range []struct {
		name, entry string
		mark        func(*policyv1beta2.OperatorPolicy) string
		lookups     []lookup.Lookup // in place of those of the policy
		want        string
		problem     string
	}{
		{name: "control: marked", entry: `{{ fromConfigMap "a" "cm" "v" }}`, mark: signed, want: `["etcd.v1"]`},
		{name: "control: own namespace without a mark", entry: `{{ fromConfigMap "policies" "cm" "v" }}`,
			want: `["etcd.v1"]`},
		{name: "attack: no mark", entry: `{{ fromConfigMap "a" "cm" "v" }}`, problem: unverified},
		{name: "attack: no mark, a computed namespace", entry: `{{ fromConfigMap (print "a") "cm" "v" }}`,
			problem: unverified},
		{name: "attack: no mark, all namespaces", entry: `{{ (index (lookup "v1" "ConfigMap" "" "").items 0).data.v }}`,
			problem: unverified},
		{name: "attack: no mark, a kind without namespaces", entry: `{{ (lookup "v1" "Node" "" "n1").metadata.name }}`,
			problem: unverified},
		{name: "attack: the mark of another spec", entry: `{{ fromConfigMap "a" "cm" "v" }}`, problem: unverified,
			mark: func(*policyv1beta2.OperatorPolicy) string {
				return rules.SignAuthor(key, policy(versions(`{{ fromConfigMap "a" "other" "v" }}`)))
			}},
		{name: "attack: the mark of another policy", entry: `{{ fromConfigMap "a" "cm" "v" }}`, problem: unverified,
			mark: func(op *policyv1beta2.OperatorPolicy) string {
				other := op.DeepCopy()
				other.Name = "other"
				return rules.SignAuthor(key, other)
			}},
		{name: "attack: the mark of another key", entry: `{{ fromConfigMap "a" "cm" "v" }}`, problem: unverified,
			mark: func(op *policyv1beta2.OperatorPolicy) string { return rules.SignAuthor([]byte("guess"), op) }},
		{name: "attack: a lookup that was not found in the text", entry: `{{ fromConfigMap "a" "cm" "v" }}`,
			mark: signed, problem: notFound,
			lookups: []lookup.Lookup{{Kind: "ConfigMap", Namespace: "a", Name: "other"}, {Kind: "Node"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := startAPI(t)
			a.configMaps["cm"] = "etcd.v1"
			s, _ := a.session(t)
			op := policy(versions(tc.entry))
			if tc.mark != nil {
				op.Annotations = map[string]string{metakey.Verified: tc.mark(op)}
			}
			r := newResolver(Options{Namespace: "opgate-system", Key: func() []byte { return key }}, nil)
			scope := r.scope(op)
			if tc.lookups != nil {
				scope.lookups = tc.lookups
			}
			answers, _ := s.resolve(t.Context(), scope, templated(op))
			raw, err := json.Marshal(answers[0].value)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(raw); answers[0].problem == "" && got != tc.want ||
				!strings.HasPrefix(answers[0].problem, tc.problem) ||
				(answers[0].problem != "") != (tc.problem != "") {
				t.Errorf("resolved to %s, problem %q; want %s, problem %q", got, answers[0].problem, tc.want,
					tc.problem)
			}
		})
	}
}

// TestI1ErrorsQuoteNothing resolves templates that fail with an error that quotes what was looked up (threat O47).
func TestI1ErrorsQuoteNothing(t *testing.T) {
	const value = `{{ $v := fromConfigMap "a" "cm" "v" }}`
	for name, entry := range map[string]string{
		"fail":                 value + `{{ fail $v }}`,
		"a name":               `{{ fromConfigMap "a" (fromConfigMap "a" "cm" "v") "v" }}`,
		"a namespace":          `{{ fromConfigMap (fromConfigMap "a" "cm" "v") "nope" "v" }}`,
		"a kind":               `{{ lookup "v1" (fromConfigMap "a" "cm" "v") "a" "cm" }}`,
		"an API version":       `{{ lookup (fromConfigMap "a" "cm" "v") "ConfigMap" "a" "cm" }}`,
		"a regular expression": value + `{{ mustRegexMatch (print "(" $v) "x" }}`,
		"a date":               value + `{{ mustToDate "2006" $v }}`,
		"a loop":               value + `{{ range $v }}{{ end }}`,
		"JSON":                 value + `{{ mustFromJson $v }}`,
		"YAML of the result":   value + `{{ print "*" $v | toLiteral }}`,
		"duplicate keys": value + `{{ fromYaml (print $v ": 1
" $v ": 2") }}`,
		"a field":      value + `{{ $v.field }}`,
		"a comparison": value + `{{ lt $v 1 }}`,
		"a version":    value + `{{ semverCompare $v "x" }}`,
	} {
		t.Run(name, func(t *testing.T) {
			a := startAPI(t)
			a.configMaps["cm"] = "hush"
			s, _ := a.session(t)
			answers, _ := s.resolve(t.Context(),
				scope{unlimited: true, lookups: rules.Lookups(policy(versions(entry)))},
				templated(policy(func(op *policyv1beta2.OperatorPolicy) { op.Spec.Subscription.Channel = entry })))
			if problem := answers[0].problem; problem == "" || strings.Contains(problem, "hush") {
				t.Errorf("resolved to %v, problem %q", answers[0].value, problem)
			}
		})
	}
}

// TestRequestsEnd checks that our context ends the library's requests, which have none.
func TestRequestsEnd(t *testing.T) {
	a := startAPI(t)
	a.hanging = make(chan struct{}, 1)
	s, _ := a.session(t)
	done := make(chan string)
	go func() {
		_, problem, _ := resolved(t, s, `{{ fromConfigMap "a" "cm" "v" }}`)
		done <- problem
	}()
	<-a.hanging
	s.interrupt()
	if problem := <-done; !strings.Contains(problem, "context canceled") {
		t.Errorf("problem %q", problem)
	}
	if !s.lost() {
		t.Error("a session that was interrupted is used again")
	}
}

func TestKindThatIsNotServedAnyMore(t *testing.T) {
	calls := make(chan struct{}, 10)
	tr := &transport{base: roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
	}), ctx: t.Context(), lost: func() { calls <- struct{}{} }}
	for path, want := range map[string]bool{
		"/apis/x.io/v1": false, "/api/v1": false, "/apis/x.io/v1/things": true, "/api/v1/configmaps": true,
		"/api/v1/namespaces/a/configmaps": true,
	} {
		tr.gone.Store(false)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
		if got := len(calls) == 1; got != want {
			t.Errorf("%s: lost was called %d times", path, len(calls))
		}
		for len(calls) > 0 {
			<-calls
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestLookupsAreBounded(t *testing.T) {
	big := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<20)
		for range maxLookup>>20 + 1 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	defer big.Close()
	tr := &transport{base: http.DefaultTransport, ctx: t.Context(), lost: func() {}}
	for query, want := range map[string]error{"": errTooLarge, "?watch=true": nil} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, big.URL+"/api/v1/pods"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 64<<10)
		for err == nil {
			_, err = resp.Body.Read(buffer)
		}
		_ = resp.Body.Close()
		if want != nil && !errors.Is(err, want) || want == nil && errors.Is(err, errTooLarge) {
			t.Errorf("%q: %v, want %v", query, err, want)
		}
	}
}

func TestRequestsEndWithTheSession(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		close(begun)
		<-r.Context().Done()
	}))
	defer hanging.Close()
	tr := &transport{base: http.DefaultTransport, ctx: ctx, lost: func() {}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, hanging.URL+"/api/v1/pods?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	cancel()
	if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
	_ = resp.Body.Close()
}
