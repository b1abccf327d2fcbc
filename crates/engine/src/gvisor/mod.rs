//! stub
pub(crate) const TOOL_PROCESSES: u64 = 100;
pub(crate) fn draw(
    _r: &cofferdam_contract::request::Request,
    _l: &[(rustix::process::Resource, u64)],
    _c: Option<usize>,
    _ch: crate::plan::Channel,
    _h: &crate::host::Host,
) -> Result<crate::outer::Outer, crate::error::EngineError> {
    Err(crate::error::EngineError::Unavailable { backend: "gvisor", why: String::new(), fix: String::new() })
}
