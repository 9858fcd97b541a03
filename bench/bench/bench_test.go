package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// servers is the first argument that makes the test's binary one of the servers.
const servers = "opgate-bench-server"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == servers {
		if err := Serve(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func options(t *testing.T) Options {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Program: []string{program, servers}, Rounds: 1, Policies: []int{1, 20}, Reviews: 1,
		Revision: "v0 <&>", Now: time.Now}
}

// TestEscapes compares the escapes in a body with those of plans in use, by which the size is named.
func TestEscapes(t *testing.T) {
	size := sizeNamed(escaped)
	if err := size.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	var of [256]float64
	for i := 0; i < len(size.allowed); i++ {
		if size.allowed[i] == '\\' {
			i++
			of[size.allowed[i]] += 100 / float64(len(size.allowed))
		}
	}
	if quotes, slashes := of['"'], of['\\']; math.Abs(quotes-9) > .5 || math.Abs(slashes-2) > .3 {
		t.Errorf("%.2f %% are escaped quotes and %.2f %% backslashes, want 9 and 2", quotes, slashes)
	}
}

// TestRun runs one round of a few reviews, which Opgate has to allow, after one of each size that it has to deny. It
// looks at no time.
func TestRun(t *testing.T) {
	report, err := Run(t.Context(), options(t))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"S": 5 << 10, bare: 2500, "M": 84 << 10, "L": 2200 << 10, escaped: 1900 << 10}
	var rows []string
	for _, row := range report.Rows {
		rows = append(rows, row.Size+" "+row.Server)
		if row.Body < want[row.Size]*4/5 || row.Body > want[row.Size]*6/5 {
			t.Errorf("a body of size %s has %d bytes, want about %d", row.Size, row.Body, want[row.Size])
		}
		if row.CPU <= 0 || row.Allocations <= 0 || row.Allocated <= 0 || row.P50 <= 0 || row.P99 < row.P50 ||
			row.OfEmpty.Estimate <= 0 {
			t.Errorf("something was not measured: %+v", row)
		}
	}
	var every []string
	for _, size := range SizeNames() {
		for _, server := range []string{"TLS echo", "empty webhook", "typed decode", "Opgate, 1 policy",
			"Opgate, 20 policies"} {
			every = append(every, size+" "+server)
		}
	}
	if !slices.Equal(rows, every) {
		t.Errorf("rows %q, want %q", rows, every)
	}
	if len(report.Goals) != 16 {
		t.Errorf("%d goals, want 16", len(report.Goals))
	}
	for _, goal := range report.Goals {
		if goal.Met || goal.Got.High != nil {
			t.Errorf("one round has no interval: %+v", goal)
		}
	}
	outputs(t, report)
}

// outputs writes a report in each form.
func outputs(t *testing.T, report *Report) {
	t.Helper()
	var table, data bytes.Buffer
	if err := errors.Join(report.Table(&table), report.JSON(&data)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(table.String(), "not known"); n != len(report.Goals) {
		t.Errorf("the table has %d goals that are not known, want %d:\n%s", n, len(report.Goals), table.String())
	}
	var read Report
	if err := json.Unmarshal(data.Bytes(), &read); err != nil || len(read.Rows) != len(report.Rows) {
		t.Errorf("%d rows in JSON, %v", len(read.Rows), err)
	}
}

// TestVerdictsAreCompared has a server that does not refuse what Opgate does, in the place of Opgate.
func TestVerdictsAreCompared(t *testing.T) {
	size := sizeNamed("S")
	if err := size.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := start(t.Context(), kind{floor: empty}, options(t).Program)
	if err != nil {
		t.Fatal(err)
	}
	defer s.end()
	if err := s.check(t.Context(), size); err != nil {
		t.Error(err)
	}
	s.kind = kind{policies: 1}
	if err := s.check(t.Context(), size); err == nil || !strings.Contains(err.Error(), "want allowed false") {
		t.Errorf("the error is %v", err)
	}
}

func TestOptions(t *testing.T) {
	for want, edit := range map[string]func(*Options){
		`"XL" is not one of S, S-bare, M, L`: func(o *Options) { o.Sizes = []string{"S", "XL"} },
		"0 rounds":                           func(o *Options) { o.Rounds = 0 },
		"0 policies":                         func(o *Options) { o.Policies = []int{0} },
		"-1 reviews":                         func(o *Options) { o.Reviews = -1 },
		"Program and Now":                    func(o *Options) { o.Now = nil },
	} {
		o := options(t)
		edit(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
