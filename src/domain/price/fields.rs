//! How a price is written in policy: one flat set of fields, of which each model takes its own.

use serde::{Deserialize, Serialize};

use super::{Charge, ChargeOn, Price, PriceModel, Tiers};
use crate::domain::amount::Amount;
use crate::domain::civil_date::CivilDate;
use crate::domain::factor::Factor;
use crate::domain::field_error::about;
use crate::domain::ids::{MeterId, PriceId};
use crate::domain::money::{Currency, Money};

/// A price. The same fields in a plan and of a tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "Price")]
pub(super) struct PriceFields {
    meter: MeterId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<PriceId>,
    model: PriceModel,
    currency: Currency,
    #[serde(default)]
    charge_on: ChargeOn,
    #[serde(default)]
    included: Amount,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<Factor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    package_size: Option<Amount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flat: Option<Amount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    minimum: Option<Amount>,
    effective_from: CivilDate,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tiers: Option<Tiers>,
}

impl PriceFields {
    /// Refuses fields that the model does not take.
    fn only(&self, taken: &[&str]) -> Result<(), String> {
        let given = [
            ("charge_on", self.charge_on == ChargeOn::Overage),
            ("included", !self.included.is_zero()),
            ("unit", self.unit.is_some()),
            ("package_size", self.package_size.is_some()),
            ("flat", self.flat.is_some()),
            ("minimum", self.minimum.is_some()),
            ("tiers", self.tiers.is_some()),
        ];
        match given.iter().find(|(name, is_given)| *is_given && !taken.contains(name)) {
            Some((name, _)) => {
                let model = self.model.as_str();
                Err(about(name, format!("a price of the model `{model}` takes no `{name}`")))
            }
            None => Ok(()),
        }
    }

    fn needs<T>(&self, name: &str, value: Option<T>) -> Result<T, String> {
        let model = self.model.as_str();
        value.ok_or_else(|| about(name, format!("a price of the model `{model}` needs `{name}`")))
    }

    fn charge(&self) -> Result<Charge, String> {
        let with = |taken: &[&str]| self.only(&[&["charge_on", "included", "minimum"], taken].concat());
        match self.model {
            PriceModel::PerUnit => {
                with(&["unit"])?;
                Ok(Charge::PerUnit { unit: self.needs("unit", self.unit)? })
            }
            PriceModel::Package => {
                with(&["unit", "package_size"])?;
                let package_size = self.needs("package_size", self.package_size)?;
                if package_size.is_zero() {
                    return Err(about("package_size", "`package_size` must be above zero"));
                }
                Ok(Charge::Package { unit: self.needs("unit", self.unit)?, package_size })
            }
            PriceModel::Graduated => {
                with(&["tiers"])?;
                Ok(Charge::Graduated(self.needs("tiers", self.tiers.clone())?))
            }
            PriceModel::Volume => {
                with(&["tiers"])?;
                Ok(Charge::Volume(self.needs("tiers", self.tiers.clone())?))
            }
            PriceModel::Flat => {
                self.only(&["flat"])?;
                Ok(Charge::Flat { flat: self.currency.money_in("flat", self.needs("flat", self.flat)?)? })
            }
        }
    }
}

impl TryFrom<PriceFields> for Price {
    type Error = String;
    fn try_from(fields: PriceFields) -> Result<Self, String> {
        Ok(Self {
            charge: fields.charge()?,
            minimum: fields
                .minimum
                .map(|minimum| fields.currency.money_in("minimum", minimum))
                .transpose()?,
            meter: fields.meter,
            id: fields.id,
            currency: fields.currency,
            charge_on: fields.charge_on,
            included: fields.included,
            effective_from: fields.effective_from,
        })
    }
}

impl From<Price> for PriceFields {
    fn from(price: Price) -> Self {
        let model = price.model();
        // Money of a price was an amount when it was read: it is never below zero.
        let amount = |money: Money| Amount::from_decimal(money.decimal()).unwrap_or_default();
        let (mut unit, mut package_size, mut flat, mut tiers) = (None, None, None, None);
        match price.charge {
            Charge::PerUnit { unit: each } => unit = Some(each),
            Charge::Package { unit: each, package_size: size } => {
                (unit, package_size) = (Some(each), Some(size));
            }
            Charge::Graduated(all) | Charge::Volume(all) => tiers = Some(all),
            Charge::Flat { flat: whole } => flat = Some(amount(whole)),
        }
        Self {
            meter: price.meter,
            id: price.id,
            model,
            currency: price.currency,
            charge_on: price.charge_on,
            included: price.included,
            unit,
            package_size,
            flat,
            minimum: price.minimum.map(amount),
            effective_from: price.effective_from,
            tiers,
        }
    }
}
