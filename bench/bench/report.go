package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"text/tabwriter"
	"time"
)

// Report is what Run measured.
type Report struct {
	// Revision, Time, Load, Processors and Go say which run it is. Load is the machine's, over 1, 5 and 15 minutes,
	// when it started.
	Revision   string    `json:"revision,omitempty"`
	Time       time.Time `json:"time"`
	Load       string    `json:"load,omitempty"`
	Processors int       `json:"processors"`
	Go         string    `json:"go"`
	Rounds     int       `json:"rounds"`
	Seed       uint64    `json:"seed"`
	Rows       []Row     `json:"rows"`
	Goals      []Goal    `json:"goals"`
}

// Row is one server and one size.
type Row struct {
	Size   string `json:"size"`
	Server string `json:"server"`
	// Body is how long a review is, in bytes.
	Body int `json:"bodyBytes"`
	// CPU is the median of the rounds' CPU times for each review, of the whole process, in seconds.
	CPU float64 `json:"cpuSeconds"`
	// OfEcho and OfEmpty are CPU relative to these floors.
	OfEcho  Interval `json:"cpuOfEcho"`
	OfEmpty Interval `json:"cpuOfEmptyWebhook"`
	// Allocations is a number, Allocated is in bytes; both for each review, medians.
	Allocations float64 `json:"allocations"`
	Allocated   float64 `json:"allocatedBytes"`
	// OfBody is Allocated relative to Body.
	OfBody Interval `json:"allocatedOfBody"`
	// P50 and P99 are latencies of all rounds at Rate reviews a second, in seconds.
	P50  float64 `json:"p50Seconds"`
	P99  float64 `json:"p99Seconds"`
	Rate float64 `json:"reviewsPerSecond"`
	// Resident is the memory of the process in the last round, in bytes; 0 where the kernel does not say it.
	Resident int64 `json:"residentBytes"`
}

// Goal is what a ratio has to be at most.
type Goal struct {
	Name string   `json:"name"`
	Most float64  `json:"most"`
	Got  Interval `json:"got"`
	// Met is whether the whole interval is. Without an interval it is false.
	Met bool `json:"met"`
}

func newReport(o *Options) *Report {
	return &Report{Revision: o.Revision, Time: o.Now().UTC().Truncate(time.Second), Load: load(),
		Processors: runtime.NumCPU(), Go: runtime.Version(),
		Rounds: o.Rounds, Seed: o.Seed, Rows: []Row{}, Goals: []Goal{}}
}

// fill makes rows and goals of turns.
func (r *Report) fill(sizes []*Size, servers []*server, turns map[key][]turn) {
	for _, size := range sizes {
		cpuOf := func(server string) []float64 {
			return column(turns[key{size.Name, server}], func(t *turn) float64 { return t.cpu })
		}
		for _, s := range servers {
			mine := turns[key{size.Name, s.kind.String()}]
			var latencies []time.Duration
			for i := range mine {
				latencies = append(latencies, mine[i].latencies...)
			}
			cpu, allocated := cpuOf(s.kind.String()), column(mine, func(t *turn) float64 { return t.bytes })
			r.Rows = append(r.Rows, Row{
				Size: size.Name, Server: s.kind.String(), Body: len(size.allowed),
				CPU: median(cpu), OfEcho: ratio(cpu, cpuOf(echo)), OfEmpty: ratio(cpu, cpuOf(empty)),
				Allocations: median(column(mine, func(t *turn) float64 { return t.allocations })),
				Allocated:   median(allocated), OfBody: ratio(allocated,
					repeated(float64(len(size.allowed)), len(allocated))),
				P50: percentile(latencies, 50).Seconds(), P99: percentile(latencies, 99).Seconds(), Rate: size.rate,
				Resident: mine[len(mine)-1].resident,
			})
		}
		r.goals(size, servers, cpuOf)
	}
}

// limit is a goal of CPU, relative to a floor.
type limit struct {
	floor string
	most  float64
}

var limits = map[string][]limit{"S": {{echo, 2}, {empty, 0.65}}, bare: {{echo, 1.7}}, "M": {{empty, 0.23}},
	"L": {{empty, 0.16}}, escaped: {{empty, 0.22}}}

const (
	// mostOfBody is how much a review may allocate, relative to its body; mostOfFew is what it may cost with many
	// policies, relative to few.
	mostOfBody, mostOfFew = 3, 1.10
)

// goals adds those of a size, whose rows are the last ones.
func (r *Report) goals(size *Size, servers []*server, cpuOf func(string) []float64) {
	rows := r.Rows[len(r.Rows)-len(servers):]
	var opgate []Row
	for i, s := range servers {
		if s.kind.floor == "" {
			opgate = append(opgate, rows[i])
		}
	}
	few, many := opgate[0], opgate[len(opgate)-1]
	add := func(name string, most float64, got Interval) {
		r.Goals = append(r.Goals, Goal{Name: size.Name + ": " + name, Most: most, Got: got,
			Met: got.High != nil && *got.High <= most})
	}
	for _, limit := range limits[size.Name] {
		got := few.OfEmpty
		if limit.floor == echo {
			got = few.OfEcho
		}
		add("CPU of "+few.Server+", relative to "+limit.floor, limit.most, got)
	}
	if many.Server != few.Server {
		add("CPU of "+many.Server+", relative to "+few.Server, mostOfFew, ratio(cpuOf(many.Server), cpuOf(few.Server)))
	}
	add("memory for a review, relative to its body, "+few.Server, mostOfBody, few.OfBody)
}

func column(turns []turn, of func(*turn) float64) []float64 {
	values := make([]float64, len(turns))
	for i := range turns {
		values[i] = math.Max(of(&turns[i]), math.SmallestNonzeroFloat32) // nothing is relative to 0
	}
	return values
}

func repeated(value float64, n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = value
	}
	return values
}

// JSON writes the report as JSON.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Caption states which run it is.
func (r *Report) Caption() string {
	text := fmt.Sprintf("%s, %s, %d processors, %d rounds", r.Time.Format(time.DateTime)+" UTC", r.Go, r.Processors,
		r.Rounds)
	if r.Load != "" {
		text += ", load " + r.Load
	}
	if r.Revision != "" {
		text = r.Revision + ", " + text
	}
	return text
}

// Table writes rows and goals as text.
func (r *Report) Table(w io.Writer) error {
	fmt.Fprintln(w, r.Caption())
	for i, row := range r.Rows {
		if i > 0 && r.Rows[i-1].Size == row.Size {
			continue
		}
		fmt.Fprintf(w, "\n%s: %s, %.0f KiB sent. CPU relative to the floors with 95%% intervals; latencies at %g a second.\n",
			row.Size, sizeNamed(row.Size).What, float64(row.Body)/1024, row.Rate)
		if err := r.rows(w, row.Size); err != nil {
			return err
		}
	}
	fmt.Fprintln(w, "\nGoals: the whole 95% interval is at most the limit.")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "goal\tat most\tmeasured\t")
	for _, g := range r.Goals {
		verdict := "not met"
		switch {
		case g.Met:
			verdict = "met"
		case g.Got.High == nil:
			verdict = "not known: one round has no interval"
		}
		fmt.Fprintf(t, "%s\t%.2f\t%s\t%s\n", g.Name, g.Most, g.Got, verdict)
	}
	return t.Flush()
}

// rows writes those of one size.
func (r *Report) rows(w io.Writer, size string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "server\tCPU ms\tof "+echo+"\tof "+empty+
		"\tallocations\tKiB\tof the body\tp50 ms\tp99 ms\tresident MiB")
	for _, row := range r.Rows {
		if row.Size == size {
			fmt.Fprintf(t, "%s\t%.3f\t%s\t%s\t%.0f\t%.1f\t%.2f\t%.2f\t%.2f\t%.0f\n", row.Server, row.CPU*1e3,
				row.OfEcho, row.OfEmpty,
				row.Allocations, row.Allocated/1024, row.OfBody.Estimate, row.P50*1e3, row.P99*1e3,
				float64(row.Resident)/(1<<20))
		}
	}
	return t.Flush()
}
