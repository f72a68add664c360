//! Limits templates: steps, output, and the size and depth of printed values.
//!
//! The engine limits the steps. The other limits are checked here before a value becomes text, so
//! that errors name the line. Texts joined by `~` and `+` are checked only when they are printed,
//! because the operator's templates are trusted not to double one text many times.

use std::cell::Cell;
use std::io;

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

/// The most steps of a template. The longest built-in email takes a tenth of them.
pub(super) const FUEL: u64 = 500_000;
/// The most bytes that a template may print, and the longest text that a filter may return. Emails
/// are first rendered with all their items, and then with fewer.
pub(super) const MAX_OUTPUT: usize = 32 << 20;
/// The widest field of `format`, in characters.
const MAX_WIDTH: usize = 10_000;
/// The deepest nesting of lists and objects in a printed value.
const MAX_DEPTH: usize = 100;
/// The most values inside a printed value.
const MAX_VALUES: usize = 100_000;
/// The stack size for the operator's templates, in bytes. Values can nest as deep as there are
/// steps.
const STACK: usize = 512 << 20;

thread_local! {
    /// The bytes that the template on this thread may still print.
    static LEFT: Cell<usize> = const { Cell::new(MAX_OUTPUT) };
}

fn refused(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

fn too_long() -> Error {
    refused(format!("makes more than {MAX_OUTPUT} bytes"))
}

/// Renders a template with a fresh output limit, on a stack that its values cannot exhaust. Errors
/// of the engine contain such values, so `fill` must not return them.
pub(super) fn within_limits<T: Send>(is_built_in: bool, fill: impl Fn() -> T + Sync) -> T {
    let fill = || {
        LEFT.set(MAX_OUTPUT);
        fill()
    };
    if is_built_in {
        return fill();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        match thread.spawn_scoped(scope, fill) {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // The system does not have that much memory.
            Err(_) => fill(),
        }
    })
}

/// Checks a value that is about to be printed, and reduces the output that is left.
pub(super) fn check_printed(value: &Value) -> Result<(), Error> {
    let bytes = check(value)?;
    let left = LEFT.get().checked_sub(bytes).ok_or_else(too_long)?;
    LEFT.set(left);
    Ok(())
}

/// Checks that a value can become text. Returns the bytes of the texts inside.
fn check(value: &Value) -> Result<usize, Error> {
    let (mut level, mut bytes, mut values) = (vec![value.clone()], 0_usize, 0);
    for _ in 0..MAX_DEPTH {
        let mut next = Vec::new();
        for value in level {
            match value.kind() {
                ValueKind::Seq => next.extend(value.try_iter()?),
                ValueKind::Map => {
                    for key in value.try_iter()? {
                        next.push(value.get_item(&key)?);
                    }
                }
                _ => bytes += value.as_str().map_or(0, str::len),
            }
            values += 1;
            if bytes > MAX_OUTPUT || values + next.len() > MAX_VALUES {
                return Err(too_long());
            }
        }
        if next.is_empty() {
            return Ok(bytes);
        }
        level = next;
    }
    let why = format!("has lists or objects that are more than {MAX_DEPTH} deep");
    Err(refused(why))
}

/// The output of a template.
#[derive(Default)]
pub(super) struct Filled(Vec<u8>);

impl Filled {
    /// Returns the output, which is always valid UTF-8.
    pub(super) fn into_text(self) -> String {
        String::from_utf8(self.0).unwrap_or_default()
    }
}

impl io::Write for Filled {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::Error::other(format!(
                "makes more than {MAX_OUTPUT} bytes"
            )));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Limits the engine's filters that can return more than they receive.
pub(super) fn limit_filters(env: &mut Environment<'_>) {
    use minijinja::filters;

    type Check = fn(&[Value]) -> Result<(), Error>;
    macro_rules! filter {
        ($name:ident, $check:expr) => {
            (
                stringify!($name),
                Value::from_function(filters::$name),
                $check,
            )
        };
    }
    let filters: [(&'static str, Value, Check); 9] = [
        filter!(format, check_widths),
        filter!(indent, check_indent),
        filter!(replace, check_replace),
        filter!(join, check_join),
        filter!(batch, check_parts),
        filter!(slice, check_parts),
        filter!(tojson, |_| Ok(())),
        filter!(pprint, |_| Ok(())),
        filter!(string, |_| Ok(())),
    ];
    for (name, filter, check_more) in filters {
        let limited = move |state: &mut State<'_, '_>, args: Rest<Value>| {
            for arg in args.iter() {
                check(arg)?;
            }
            check_more(&args)?;
            let text = filter.call(state, &args)?;
            check(&text).map(|_| text)
        };
        env.add_filter(name, limited);
    }
}

/// Returns the text argument at this position, or an empty text.
fn text(args: &[Value], place: usize) -> &str {
    args.get(place).and_then(Value::as_str).unwrap_or_default()
}

fn within(bytes: usize, most: usize) -> Result<(), Error> {
    if bytes > most {
        Err(too_long())
    } else {
        Ok(())
    }
}

/// Checks the widths of `format`. They are in the format string, or among the arguments if it
/// contains an asterisk.
fn check_widths(args: &[Value]) -> Result<(), Error> {
    let format = text(args, 0);
    let in_text = format.split(|sign: char| !sign.is_ascii_digit());
    let in_text = in_text.filter(|digits| !digits.is_empty());
    let is_wide = |digits: &str| digits.parse().is_ok_and(|width: usize| width <= MAX_WIDTH);
    let mut numbers = args
        .iter()
        .skip(1)
        .filter_map(|arg| i64::try_from(arg.clone()).ok());
    let given = |width: i64| width.unsigned_abs() > MAX_WIDTH as u64;
    if !in_text.clone().all(is_wide) || format.contains('*') && numbers.any(given) {
        let why = format!("formats a field that is wider than {MAX_WIDTH} characters");
        return Err(refused(why));
    }
    within(in_text.count() * MAX_WIDTH, MAX_OUTPUT)
}

fn check_indent(args: &[Value]) -> Result<(), Error> {
    let width = args.get(1).map(|width| match width.kind() {
        ValueKind::Map => width.get_attr("width").unwrap_or_default(),
        _ => width.clone(),
    });
    let width = width.and_then(|width| usize::try_from(width).ok());
    let lines = 1 + text(args, 0).matches('\n').count();
    within(lines.saturating_mul(width.unwrap_or_default()), MAX_OUTPUT)
}

fn check_replace(args: &[Value]) -> Result<(), Error> {
    let places = text(args, 0).matches(text(args, 1)).count();
    within(places.saturating_mul(text(args, 2).len()), MAX_OUTPUT)
}

/// Checks the second argument of `batch` and `slice`: they create that many values.
fn check_parts(args: &[Value]) -> Result<(), Error> {
    let parts = args
        .get(1)
        .and_then(|parts| i64::try_from(parts.clone()).ok());
    match parts {
        Some(parts) if parts.unsigned_abs() > MAX_VALUES as u64 => {
            Err(refused(format!("makes more than {MAX_VALUES} values")))
        }
        _ => Ok(()),
    }
}

fn check_join(args: &[Value]) -> Result<(), Error> {
    let parts = args.first().and_then(Value::len).unwrap_or_default();
    within(parts.saturating_mul(text(args, 1).len()), MAX_OUTPUT)
}
