package operatorpolicy

import (
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/window"
)

// calendar reads when a policy lets plans be approved. What is not valid is left out, and makes the policy one that
// cannot be read.
func (r *reader) calendar(spec *policyv1beta2.OperatorPolicySpec) (calendar window.Calendar) {
	path := specPath.Child("approvalWindows")
	for i := range spec.ApprovalWindows {
		if !r.admits(path.String()) {
			break
		}
		from := &spec.ApprovalWindows[i]
		w, errCron, errZone, errDuration := window.New(from.Cron, from.TimeZone, from.Duration)
		for _, part := range []struct {
			name, value string
			err         error
		}{{"cron", from.Cron, errCron}, {"timeZone", from.TimeZone, errZone},
			{"duration", from.Duration, errDuration}} {
			if part.err != nil {
				r.invalid(path.Index(i).Child(part.name), part.value, part.err.Error())
			}
		}
		calendar.Windows = append(calendar.Windows, w)
	}
	path = specPath.Child("freezes")
	for i := range spec.Freezes {
		if !r.admits(path.String()) {
			break
		}
		from := &spec.Freezes[i]
		start, errStart := moment(path.Index(i).Child("start"), from.Start)
		end, errEnd := moment(path.Index(i).Child("end"), from.End)
		if r.add(append(errStart, errEnd...)...); len(errStart)+len(errEnd) > 0 {
			continue
		}
		if !start.Before(end) {
			r.invalid(path.Index(i).Child("end"), from.End, "must be after start, "+strconv.Quote(from.Start))
		}
		calendar.Freezes = append(calendar.Freezes, window.Freeze{Start: start, End: end, Reason: from.Reason})
	}
	return calendar
}

// moment reads a time of a spec.
func moment(path *field.Path, value string) (time.Time, field.ErrorList) {
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return t, field.ErrorList{field.Invalid(path, value,
			"must be a time as in RFC 3339, such as 2026-12-15T00:00:00Z or 2026-12-15T00:00:00+01:00")}
	}
	return t, nil
}

// Age is spec.minimumAge with spec.urgent, prepared for judging. The zero value holds nothing.
type Age struct {
	// Least is how long a catalog has to have offered a version; 0 for any time.
	Least time.Duration
	// Text is the duration as the policy has it.
	Text string
	// urgent are the names that it does not hold.
	urgent []string
}

// Holds reports whether any plan may be held.
func (a *Age) Holds() bool { return a.Least > 0 }

// Skips reports whether spec.urgent names a ClusterServiceVersion, or it with the digest of its bundle image, which is
// "" if that is not known.
func (a *Age) Skips(csv, digest string) bool {
	return slices.Contains(a.urgent, csv) || digest != "" && slices.Contains(a.urgent, csv+"@"+digest)
}
