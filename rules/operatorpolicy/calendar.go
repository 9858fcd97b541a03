package operatorpolicy

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/window"
)

// Bounds of what is read of spec.approvalWindows and spec.freezes, as in the schema.
const (
	maxWindows = 16
	maxFreezes = 64
)

// calendar reads when a policy lets plans be approved. What is not valid is left out, and makes the policy one that
// cannot be read.
func (r *reader) calendar(spec *policyv1beta2.OperatorPolicySpec) (calendar window.Calendar) {
	path := specPath.Child("approvalWindows")
	for i := range spec.ApprovalWindows[:min(len(spec.ApprovalWindows), maxWindows)] {
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
	for i := range spec.Freezes[:min(len(spec.Freezes), maxFreezes)] {
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
