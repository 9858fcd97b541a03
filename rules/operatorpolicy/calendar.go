package operatorpolicy

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/window"
)

// Bounds of spec.approvalWindows and spec.freezes.
const (
	maxWindows = 16
	maxFreezes = 64
)

// NewCalendar returns when a policy lets plans be approved, and what is not valid about that; what is not valid is left
// out, and makes the policy one that cannot be read.
func NewCalendar(spec *policyv1beta2.OperatorPolicySpec) (calendar window.Calendar, errs field.ErrorList) {
	path := specPath.Child("approvalWindows")
	if len(spec.ApprovalWindows) > maxWindows {
		errs = append(errs, field.TooMany(path, len(spec.ApprovalWindows), maxWindows))
	}
	for i := range spec.ApprovalWindows[:min(len(spec.ApprovalWindows), maxWindows)] {
		from := &spec.ApprovalWindows[i]
		w, errCron, errZone, errDuration := window.New(from.Cron, from.TimeZone, from.Duration)
		for _, part := range []struct {
			name, value string
			err         error
		}{{"cron", from.Cron, errCron}, {"timeZone", from.TimeZone, errZone},
			{"duration", from.Duration, errDuration}} {
			if part.err != nil {
				errs = append(errs, field.Invalid(path.Index(i).Child(part.name), part.value, part.err.Error()))
			}
		}
		calendar.Windows = append(calendar.Windows, w)
	}
	path = specPath.Child("freezes")
	if len(spec.Freezes) > maxFreezes {
		errs = append(errs, field.TooMany(path, len(spec.Freezes), maxFreezes))
	}
	for i := range spec.Freezes[:min(len(spec.Freezes), maxFreezes)] {
		from := &spec.Freezes[i]
		start, errStart := Moment(path.Index(i).Child("start"), from.Start)
		end, errEnd := Moment(path.Index(i).Child("end"), from.End)
		if errs = append(errs, append(errStart, errEnd...)...); len(errStart)+len(errEnd) > 0 {
			continue
		}
		if !start.Before(end) {
			errs = append(errs, field.Invalid(path.Index(i).Child("end"), from.End,
				"must be after start, "+strconv.Quote(from.Start)))
		}
		calendar.Freezes = append(calendar.Freezes, window.Freeze{Start: start, End: end, Reason: from.Reason})
	}
	return calendar, errs
}

// Moment reads a time of a spec.
func Moment(path *field.Path, value string) (time.Time, field.ErrorList) {
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return t, field.ErrorList{field.Invalid(path, value,
			"must be a time as in RFC 3339, such as 2026-12-15T00:00:00Z or 2026-12-15T00:00:00+01:00")}
	}
	return t, nil
}
