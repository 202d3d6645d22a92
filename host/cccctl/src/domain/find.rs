// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Domains by their names, which may look like the id of another: virsh would take them
//! for that.
use super::{
    Domain, DomainError, Host,
    virsh::{DomainId, VirshError},
};

impl Host<'_> {
    /// The domain with this very name, as it is.
    pub(super) fn find(&self, name: &str) -> Result<(DomainId, Domain), DomainError> {
        let (id, domain) = self.look_up(name)?;
        if id.name == name {
            return Ok((id, domain));
        }
        let by_uuid = self.virsh.uuid_of(name)?.map(|uuid| self.look_up(&uuid)).transpose()?;
        let other = || VirshError::NotItsName { asked: name.to_owned(), name: id.name };
        Ok(by_uuid.filter(|(id, _)| id.name == name).ok_or_else(other)?)
    }

    /// What virsh finds.
    fn look_up(&self, domain: &str) -> Result<(DomainId, Domain), DomainError> {
        let domain = Domain::parse(&self.virsh.current(domain)?)?;
        let id = domain.id()?;
        Ok((id, domain))
    }
}
