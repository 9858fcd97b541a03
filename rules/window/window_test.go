package window

import (
	"testing"
	"time"
)

func mustNew(t *testing.T, expression, zone, duration string) Window {
	t.Helper()
	w, errs := New(nil, expression, zone, duration)
	if len(errs) > 0 {
		t.Fatalf("New(%q, %q, %q): %v", expression, zone, duration, errs)
	}
	return w
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

// TestWindow has the moments around each edge, on ordinary days and on those on which clocks change.
func TestWindow(t *testing.T) {
	for name, test := range map[string]struct {
		cron, zone, duration string
		// at is a moment, and opens when approvals are allowed next, "" for then.
		at, opens string
	}{
		"a second before":     {"0 22 * * 6", "UTC", "4h", "2026-11-28T21:59:59Z", "2026-11-28T22:00:00Z"},
		"at the start":        {"0 22 * * 6", "UTC", "4h", "2026-11-28T22:00:00Z", ""},
		"before the end":      {"0 22 * * 6", "UTC", "4h", "2026-11-29T01:59:59Z", ""},
		"at the end":          {"0 22 * * 6", "UTC", "4h", "2026-11-29T02:00:00Z", "2026-12-05T22:00:00Z"},
		"no zone is UTC":      {"0 22 * * 6", "", "4h", "2026-11-28T21:00:00Z", "2026-11-28T22:00:00Z"},
		"overlapping starts":  {"0 * * * *", "UTC", "2h", "2026-11-28T21:59:59Z", ""},
		"whole weeks":         {"0 0 * * 1", "UTC", "168h", "2026-11-29T23:59:59Z", ""},
		"another zone":        {"0 2 * * *", "America/New_York", "1h", "2026-11-28T06:59:59Z", "2026-11-28T07:00:00Z"},
		"half an hour off":    {"0 2 * * *", "Asia/Kolkata", "1h", "2026-11-27T20:29:59Z", "2026-11-27T20:30:00Z"},
		"a leap day":          {"0 0 29 2 *", "UTC", "24h", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		"forward, before":     {"0 2 * * *", "Europe/Berlin", "1h", "2026-03-29T01:59:59+01:00", "2026-03-29T03:00:00+02:00"},
		"forward, at":         {"0 2 * * *", "Europe/Berlin", "1h", "2026-03-29T03:00:00+02:00", ""},
		"forward, in the gap": {"30 2 * * *", "Europe/Berlin", "1h", "2026-03-29T03:59:59+02:00", ""},
		"forward, after":      {"30 2 * * *", "Europe/Berlin", "1h", "2026-03-29T04:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		"forward, across":     {"0 22 * * 6", "Europe/Berlin", "8h", "2026-03-29T06:59:59+02:00", ""},
		"forward, over":       {"0 22 * * 6", "Europe/Berlin", "8h", "2026-03-29T07:00:00+02:00", "2026-04-04T22:00:00+02:00"},
		"back, before":        {"30 2 * * *", "Europe/Berlin", "1h", "2026-10-25T02:29:59+02:00", "2026-10-25T02:30:00+02:00"},
		"back, first time":    {"30 2 * * *", "Europe/Berlin", "1h", "2026-10-25T02:30:00+02:00", ""},
		"back, second time":   {"30 2 * * *", "Europe/Berlin", "1h", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"},
		"back, between":       {"30 2 * * *", "Europe/Berlin", "1h", "2026-10-25T02:00:00+01:00", ""},
		"back, every minute":  {"* * * * *", "Europe/Berlin", "1m", "2026-10-25T01:59:59+02:00", ""},
		"back, the hour again": {"* * * * *", "Europe/Berlin", "1m", "2026-10-25T02:30:00+01:00",
			"2026-10-25T03:00:00+01:00"},
		"half an hour back": {"45 1 * * *", "Australia/Lord_Howe", "10m", "2026-04-05T01:45:00+11:00", ""},
		"half an hour, second": {"45 1 * * *", "Australia/Lord_Howe", "10m", "2026-04-05T01:45:00+10:30",
			"2026-04-06T01:45:00+10:30"},
		"a day left out": {"0 10 30 12 *", "Pacific/Apia", "1h", "2011-12-31T00:30:00+14:00", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := Calendar{Windows: []Window{mustNew(t, test.cron, test.zone, test.duration)}}
			state := c.At(at(t, test.at))
			if state.Open != (test.opens == "") {
				t.Fatalf("open is %v at %s, opens %s", state.Open, test.at, state.Opens)
			}
			if test.opens != "" && !state.Opens.Equal(at(t, test.opens)) {
				t.Errorf("opens %s, want %s", state.Opens.Format(time.RFC3339), test.opens)
			}
		})
	}
}

func TestCalendar(t *testing.T) {
	night := mustNew(t, "0 22 * * *", "UTC", "4h")
	noon := mustNew(t, "0 12 * * *", "UTC", "1h")
	freeze := func(from, to string) Freeze { return Freeze{Start: at(t, from), End: at(t, to)} }
	december := freeze("2026-12-15T00:00:00Z", "2027-01-02T23:00:00Z")
	for name, test := range map[string]struct {
		calendar           Calendar
		at, opens, changes string
	}{
		"nothing": {at: "2026-11-28T00:00:00Z"},
		"the earlier": {Calendar{Windows: []Window{night, noon}}, "2026-11-28T09:00:00Z", "2026-11-28T12:00:00Z",
			"2026-11-28T12:00:00Z"},
		"either":          {Calendar{Windows: []Window{night, noon}}, "2026-11-28T12:30:00Z", "", ""},
		"before a freeze": {Calendar{Freezes: []Freeze{december}}, "2026-12-14T23:59:59Z", "", ""},
		"in a freeze": {Calendar{Freezes: []Freeze{december}}, "2026-12-15T00:00:00Z", "2027-01-02T23:00:00Z",
			"2027-01-02T23:00:00Z"},
		"after a freeze": {Calendar{Freezes: []Freeze{december}}, "2027-01-02T23:00:00Z", "", ""},
		"frozen and closed": {Calendar{[]Window{noon}, []Freeze{december}}, "2026-12-20T12:30:00Z",
			"2027-01-03T12:00:00Z", "2027-01-02T23:00:00Z"},
		"ends in a window": {Calendar{[]Window{night}, []Freeze{december}}, "2026-12-20T12:30:00Z",
			"2027-01-02T23:00:00Z", "2027-01-02T23:00:00Z"},
		"opens in a freeze": {Calendar{[]Window{night}, []Freeze{december}}, "2026-12-14T21:00:00Z",
			"2026-12-14T22:00:00Z", "2026-12-14T22:00:00Z"},
		"skips frozen days": {Calendar{[]Window{noon}, []Freeze{december}}, "2026-12-14T13:00:00Z",
			"2027-01-03T12:00:00Z", "2027-01-03T12:00:00Z"},
		"adjacent freezes": {Calendar{Freezes: []Freeze{december,
			freeze("2027-01-02T23:00:00Z", "2027-02-01T00:00:00Z")}},
			"2026-12-20T00:00:00Z", "2027-02-01T00:00:00Z", "2027-01-02T23:00:00Z"},
		"a freeze in a freeze": {Calendar{Freezes: []Freeze{freeze("2026-12-20T00:00:00Z", "2026-12-21T00:00:00Z"),
			december}},
			"2026-12-20T00:00:00Z", "2027-01-02T23:00:00Z", "2027-01-02T23:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			state := test.calendar.At(at(t, test.at))
			if state.Open != (test.opens == "") {
				t.Fatalf("open is %v, opens %s", state.Open, state.Opens)
			}
			if test.opens != "" && (!state.Opens.Equal(at(t, test.opens)) ||
				!state.Changes().Equal(at(t, test.changes))) {
				t.Errorf("opens %s, changes %s, want %s, %s", state.Opens, state.Changes(), test.opens, test.changes)
			}
		})
	}
}

// TestInvalid has what the parser would accept, or panic on, as well.
func TestInvalid(t *testing.T) {
	for _, expression := range []string{"", "  ", "* * * *", "* * * * * *", "TZ=0", "TZ=UTC 0 0 * * *",
		"CRON_TZ=UTC 0 0 * * *", "@every 1h", "@daily",
		"0 0 30 2 *", "61 * * * *", "*/0 * * * *", "0-59/0 * * * *", "a b c d e", "0 0 * * 8"} {
		if _, errs := New(nil, expression, "", "1h"); len(errs) != 1 || errs[0].Field != "cron" {
			t.Errorf("cron %q is accepted", expression)
		}
	}
	for _, zone := range []string{"Local", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "\\x"} {
		if _, errs := New(nil, "0 0 * * *", zone, "1h"); len(errs) != 1 || errs[0].Field != "timeZone" {
			t.Errorf("time zone %q is accepted", zone)
		}
	}
	for _, duration := range []string{"", "4", "59s", "168h1s", "-1h", "1d"} {
		if _, errs := New(nil, "0 0 * * *", "", duration); len(errs) != 1 || errs[0].Field != "duration" {
			t.Errorf("duration %q is accepted", duration)
		}
	}
	never := Calendar{Windows: []Window{{}}}
	if state := never.At(reference); state.Open || !state.Opens.IsZero() {
		t.Errorf("a zero window opens: %+v", state)
	}
}

// FuzzCron parses whatever a policy may hold, and looks for the next start.
func FuzzCron(f *testing.F) {
	for _, seed := range []string{"0 22 * * 6", "TZ=", "*/5 0-3 1,15 JAN-MAR MON", "? ? ? ? ?", "0 0 29 2 *"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		w, errs := New(nil, expression, "Europe/Berlin", "1h")
		if len(errs) > 0 {
			return
		}
		if start := w.startAfter(reference); !start.After(reference) {
			t.Errorf("%q begins at %s, not after %s", expression, start, reference)
		}
	})
}
